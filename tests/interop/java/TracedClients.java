import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

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
        boolean done = heard.await(30, TimeUnit.SECONDS);
        // The end of a call is noted after the listener has come back.
        Thread.sleep(200);
        consumer.shutdown();
        producer.shutdown();
        return done ? sent.getMsgId() : "nothing was heard";
    }
}
