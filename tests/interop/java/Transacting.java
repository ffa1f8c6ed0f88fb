import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are there when, and only when, their local transaction has been committed. */
final class Transacting {
    private final String nameServer;

    Transacting(String nameServer) {
        this.nameServer = nameServer;
    }

    /**
     * Send one message per "executed" state, whose body is that state, and wait until "checks" of them were asked
     * about; each is then answered "checked". "asked" has the fields of what was asked about.
     */
    JSONObject transact(JSONObject command) throws Exception {
        ConcurrentLinkedQueue<JSONObject> asked = new ConcurrentLinkedQueue<>();
        CountDownLatch checks = new CountDownLatch(JavaPeer.number(command, "checks", 0));
        TransactionMQProducer producer = new TransactionMQProducer(command.getString("group"));
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(10_000);
        // Only a producer that a broker has heard of can be asked.
        producer.setHeartbeatBrokerInterval(200);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return LocalTransactionState.valueOf((String) state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(Consuming.fields(message, System.currentTimeMillis()));
                checks.countDown();
                return LocalTransactionState.valueOf(command.getString("checked"));
            }
        });
        producer.start();
        JSONArray receipts = new JSONArray();
        for (Object state : JavaPeer.list(command, "executed")) {
            byte[] body = state.toString().getBytes(StandardCharsets.UTF_8);
            receipts.add(Producing.receipt(
                producer.sendMessageInTransaction(Producing.described(command, body), state)));
        }
        // Not shut down: what the last check came to is sent after the listener has returned.
        checks.await((long) (command.getDoubleValue("timeout") * 1000), TimeUnit.MILLISECONDS);
        JSONObject answer = new JSONObject();
        answer.put("receipts", receipts);
        answer.put("asked", new JSONArray(List.copyOf(asked)));
        answer.put("checksLeft", checks.getCount());
        return answer;
    }
}
