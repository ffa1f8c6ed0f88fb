import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply, both sides of it. */
final class Requesting {
    private final String nameServer;
    private DefaultMQProducer requester;

    Requesting(String nameServer) {
        this.nameServer = nameServer;
    }

    /** Send a request and wait for its reply. */
    JSONObject request(JSONObject command) throws Exception {
        byte[] body = Base64.getDecoder().decode(command.getString("body"));
        Message reply = requester().request(
            new Message(command.getString("topic"), body), (long) (command.getDoubleValue("timeout") * 1000));
        JSONObject answer = new JSONObject();
        answer.put("body", Base64.getEncoder().encodeToString(reply.getBody()));
        answer.put("properties", reply.getProperties());
        return answer;
    }

    /**
     * One for all requests, which is not shut down: request() returns before the client tells the broker that the reply
     * has come. Were it shut down by then, the broker would wait for that for 10 s and tell the replier that it failed.
     */
    private synchronized DefaultMQProducer requester() throws Exception {
        if (requester == null) {
            requester = producer("java-peer-requester");
        }
        return requester;
    }

    /** Reply "reply to " + body to each request of a topic until there were enough or the time is up. */
    JSONObject reply(JSONObject command) throws Exception {
        CountDownLatch left = new CountDownLatch(command.getIntValue("count"));
        DefaultMQProducer producer = producer("java-peer-replier");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String body = "reply to " + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
                    left.countDown();
                } catch (Exception problem) {
                    problem.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            left.await((long) (command.getDoubleValue("timeout") * 1000), TimeUnit.MILLISECONDS);
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
        JSONObject answer = new JSONObject();
        answer.put("left", left.getCount());
        return answer;
    }

    private DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }
}
