import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Members of groups that live until they are told to leave, and say meanwhile what they have. */
final class Members {
    private final String nameServer;
    private final Map<String, Member> members = new ConcurrentHashMap<>();

    Members(String nameServer) {
        this.nameServer = nameServer;
    }

    private static final class Member {
        DefaultMQPushConsumer consumer;
        String topic;
        final ConcurrentLinkedQueue<String> received = new ConcurrentLinkedQueue<>();
    }

    /** "name" is its instance name, so its client id is "ip@name"; "strategy" is one of Allocating's. */
    JSONObject start(JSONObject command) throws Exception {
        Member member = new Member();
        member.topic = command.getString("topic");
        AllocateMessageQueueStrategy strategy = Allocating.strategy(command.getString("strategy"), command);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setAllocateMessageQueueStrategy(strategy);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(command.getString("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000); // see Consuming
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        if (Boolean.TRUE.equals(command.getBoolean("brokerRebalance"))) {
            // By reflection, as in Consuming: 4.9 has none.
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.subscribe(member.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                member.received.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        member.consumer = consumer;
        consumer.start();
        members.put(command.getString("name"), member);
        JSONObject answer = new JSONObject();
        answer.put("clientId", consumer.buildMQClientId());
        return answer;
    }

    /** Its queues of its topic, each as [topic, broker name, queue id]; popped ones too, -1 being all of a broker. */
    JSONObject assignment(JSONObject command) throws Exception {
        Member member = members.get(command.getString("name"));
        JSONArray queues = new JSONArray();
        Object rebalance = member.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        try {
            Map<?, ?> popped = (Map<?, ?>) rebalance.getClass().getMethod("getPopProcessQueueTable").invoke(rebalance);
            for (Object one : popped.keySet()) {
                MessageQueue queue = (MessageQueue) one;
                if (queue.getTopic().equals(member.topic)) {
                    JSONArray fields = new JSONArray();
                    fields.add(queue.getTopic());
                    fields.add(queue.getBrokerName());
                    fields.add(queue.getQueueId());
                    queues.add(fields);
                }
            }
        } catch (NoSuchMethodException before5) {
            // nothing is popped there
        }
        member.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach(
            (queue, processQueue) -> {
                if (queue.getTopic().equals(member.topic) && !processQueue.isDropped()) {
                    JSONArray fields = new JSONArray();
                    fields.add(queue.getTopic());
                    fields.add(queue.getBrokerName());
                    fields.add(queue.getQueueId());
                    queues.add(fields);
                }
            });
        JSONObject answer = new JSONObject();
        answer.put("queues", queues);
        return answer;
    }

    /** The bodies of what it has received so far. */
    JSONObject received(JSONObject command) {
        JSONObject answer = new JSONObject();
        answer.put("bodies", new JSONArray(java.util.List.copyOf(members.get(command.getString("name")).received)));
        return answer;
    }

    JSONObject stop(JSONObject command) {
        members.get(command.getString("name")).consumer.shutdown();
        return new JSONObject();
    }
}
