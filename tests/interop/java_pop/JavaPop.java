import com.alibaba.fastjson.JSON;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Java's push consumer, popping: NAME_SERVER BROKER TOPIC GROUP COUNT. Sends COUNT messages, fails the first try of
 * each that ends in 7, waits until all are done, writes {body: times heard}.
 */
public class JavaPop {
    private static final Map<String, Integer> TIMES = new ConcurrentHashMap<>();
    private static final Set<String> DONE = Collections.newSetFromMap(new ConcurrentHashMap<>());

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0];
        String topic = arguments[2];
        String group = arguments[3];
        int count = Integer.parseInt(arguments[4]);
        prepare(nameServer, arguments[1], topic, group);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            messages.stream().allMatch(JavaPop::heard)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(group + "-p");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        for (int number = 0; number < count; number++) {
            producer.send(new Message(topic, String.valueOf(number).getBytes()));
        }
        for (int tries = 0; DONE.size() < count && tries < 1200; tries++) {
            Thread.sleep(50);
        }
        // What is acknowledged is acknowledged: it waits for the requests that are on their way.
        consumer.shutdown();
        producer.shutdown();
        System.out.println(JSON.toJSONString(new HashMap<>(TIMES)));
        System.exit(0);
    }

    private static boolean heard(MessageExt message) {
        String body = new String(message.getBody());
        if (message.getProperty(MessageConst.PROPERTY_POP_CK) == null) {
            throw new IllegalStateException(body + " was not popped");
        }
        TIMES.merge(body, 1, Integer::sum);
        if (body.endsWith("7") && message.getReconsumeTimes() == 0) {
            return false;
        }
        DONE.add(body);
        return true;
    }

    private static void prepare(String nameServer, String broker, String topic, String group)
        throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServer);
        admin.start();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, 4, 4, 6));
        SubscriptionGroupConfig settings = new SubscriptionGroupConfig();
        settings.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(broker, settings);
        admin.setMessageRequestMode(broker, topic, group, MessageRequestMode.POP, 0, 3000);
        admin.shutdown();
    }
}
