import com.alibaba.fastjson.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** How fast Java sends: one by one, in batches, or asynchronously with so many under way. One producer for all runs. */
final class ProduceBenchmark {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final String nameServer;
    private DefaultMQProducer producer;

    ProduceBenchmark(String nameServer) {
        this.nameServer = nameServer;
    }

    JSONObject run(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        String mode = command.getString("mode");
        int inFlight = JavaPeer.number(command, "inFlight", 1000);
        int batch = JavaPeer.number(command, "batch", 100);
        int count = command.getIntValue("count");
        byte[] body = new byte[command.getIntValue("size")];
        new Random(1).nextBytes(body);
        DefaultMQProducer producer = producer();

        long cpu = SYSTEM.getProcessCpuTime();
        long began = System.nanoTime();
        switch (mode) {
            case "sync" -> sendEach(producer, topic, body, count);
            case "batch" -> sendBatches(producer, topic, body, count, batch);
            case "async" -> sendAsync(producer, topic, body, count, inFlight);
            default -> throw new IllegalArgumentException("unknown mode " + mode);
        }
        JSONObject answer = new JSONObject();
        answer.put("messages", count);
        answer.put("seconds", (System.nanoTime() - began) / 1e9);
        answer.put("cpuSeconds", (SYSTEM.getProcessCpuTime() - cpu) / 1e9);
        return answer;
    }

    private static void sendEach(DefaultMQProducer producer, String topic, byte[] body, int count) throws Exception {
        for (int number = 0; number < count; number++) {
            check(producer.send(new Message(topic, body)));
        }
    }

    private static void sendBatches(DefaultMQProducer producer, String topic, byte[] body, int count, int batch)
        throws Exception {
        for (int sent = 0; sent < count; sent += batch) {
            List<Message> messages = new ArrayList<>(batch);
            for (int number = 0; number < Math.min(batch, count - sent); number++) {
                messages.add(new Message(topic, body));
            }
            check(producer.send(messages));
        }
    }

    private static void sendAsync(DefaultMQProducer producer, String topic, byte[] body, int count, int inFlight)
        throws Exception {
        Semaphore places = new Semaphore(inFlight);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failure.set(new IllegalStateException(result.toString()));
                }
                places.release();
            }

            @Override
            public void onException(Throwable problem) {
                failure.set(problem);
                places.release();
            }
        };
        for (int number = 0; number < count; number++) {
            places.acquire();
            producer.send(new Message(topic, body), callback);
        }
        places.acquire(inFlight);
        if (failure.get() != null) {
            throw new IllegalStateException("a send failed: " + failure.get(), failure.get());
        }
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private synchronized DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            DefaultMQProducer fresh = new DefaultMQProducer("java-peer-benchmark");
            fresh.setNamesrvAddr(nameServer);
            fresh.setInstanceName(UUID.randomUUID().toString());
            fresh.setSendMsgTimeout(10_000);
            fresh.start();
            producer = fresh;
        }
        return producer;
    }
}
