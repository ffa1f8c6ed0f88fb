import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer and a consumer of Java's own with their trace on: one message from one to the other. */
public class TracedClients {
    /** -n name server, topic, trace topic, group; prints the message's id, or what went wrong. */
    static void run(String[] args) {
        try {
            System.out.println(sentAndHeard(args));
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    private static String sentAndHeard(String[] args) throws Exception {
        String nameServer = args[1];
        String topic = args[2];
        String traceTopic = args[3];
        String group = args[4];
        DefaultMQProducer producer = new DefaultMQProducer(group + "-p", true, traceTopic);
        producer.setNamesrvAddr(nameServer);
        producer.start();
        Message message = new Message(topic, "red", "java-key", "traced by Java".getBytes(StandardCharsets.UTF_8));
        SendResult sent = producer.send(message, 10_000);
        CountDownLatch heard = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, true, traceTopic);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            heard.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!heard.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer was given nothing");
        }
        untilStored(producer, traceTopic, sent.getMsgId());
        consumer.shutdown();
        producer.shutdown();
        return sent.getMsgId();
    }

    /** Waits for the records of the send, the call and its end: a shutdown gives up those that are under way. */
    private static void untilStored(DefaultMQProducer producer, String traceTopic, String id) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (recordsOf(producer, traceTopic, id) < 3) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the trace of " + id + " is not stored");
            }
            Thread.sleep(100);
        }
    }

    private static long recordsOf(DefaultMQProducer producer, String traceTopic, String id) throws Exception {
        long count = 0;
        try {
            for (MessageExt one : producer.queryMessage(traceTopic, id, 32, 0, Long.MAX_VALUE).getMessageList()) {
                String body = new String(one.getBody(), StandardCharsets.UTF_8);
                count += TraceDataEncoder.decoderFromTraceDataString(body).stream()
                    .filter(context -> context.getTraceBeans().stream().anyMatch(bean -> id.equals(bean.getMsgId())))
                    .count();
            }
        } catch (MQClientException nothingFound) {
            // Asked again.
        }
        return count;
    }
}
