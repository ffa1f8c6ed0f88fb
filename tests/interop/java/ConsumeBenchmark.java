import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** End-to-end latency: messages sent at a steady rate that carry when they were sent, and how old they arrive. */
final class ConsumeBenchmark {
    private final String nameServer;

    ConsumeBenchmark(String nameServer) {
        this.nameServer = nameServer;
    }

    private static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    /** Sends "count" messages of "size" bytes, "rate" a second; a body begins with its microseconds since the epoch. */
    JSONObject produceSteadily(JSONObject command) throws Exception {
        int count = command.getIntValue("count");
        int size = command.getIntValue("size");
        long pause = 1_000_000_000L / command.getIntValue("rate");
        DefaultMQProducer producer = new DefaultMQProducer("steady-" + UUID.randomUUID());
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.start();
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch answered = new CountDownLatch(count);
        try {
            long next = System.nanoTime();
            for (int i = 0; i < count; i++) {
                while (System.nanoTime() < next) {
                    LockSupport.parkNanos(next - System.nanoTime());
                }
                next += pause;
                byte[] body = ByteBuffer.allocate(size).putLong(micros()).array();
                producer.send(new Message(command.getString("topic"), body), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        answered.countDown();
                    }

                    @Override
                    public void onException(Throwable problem) {
                        failed.incrementAndGet();
                        answered.countDown();
                    }
                });
            }
            answered.await(30, TimeUnit.SECONDS);
        } finally {
            producer.shutdown();
        }
        JSONObject answer = new JSONObject();
        answer.put("failed", failed.get());
        return answer;
    }

    /** Consumes "count" such messages and tells how old they were, in microseconds; the first "skip" warm up. */
    JSONObject consumeLatency(JSONObject command) throws Exception {
        int count = command.getIntValue("count");
        int skip = command.getIntValue("skip");
        long[] ages = new long[count];
        AtomicInteger seen = new AtomicInteger();
        CountDownLatch enough = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                long age = micros() - ByteBuffer.wrap(message.getBody()).getLong();
                int at = seen.getAndIncrement();
                if (at < count) {
                    ages[at] = age;
                    enough.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean complete;
        try {
            complete = enough.await((long) (command.getDoubleValue("timeout") * 1000), TimeUnit.MILLISECONDS);
        } finally {
            consumer.shutdown();
        }
        long[] counted = Arrays.copyOfRange(ages, Math.min(skip, seen.get()), Math.min(count, seen.get()));
        JSONObject answer = new JSONObject();
        answer.put("complete", complete);
        answer.put("ages", counted);
        return answer;
    }
}
