import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer, as a member of its group or on queues that it is told. */
final class LitePulling {
    private static final int POLLS_BEFORE_ANOTHER_SEEK = 20;

    private final String nameServer;

    LitePulling(String nameServer) {
        this.nameServer = nameServer;
    }

    /** Poll as a member of a group until there are "count" messages or the time is up, then commit what was polled. */
    JSONObject pull(JSONObject command) throws Exception {
        DefaultLitePullConsumer consumer = consumer(command);
        String expression = JavaPeer.text(command, "expression", "*");
        if (Boolean.TRUE.equals(command.getBoolean("sql"))) {
            consumer.subscribe(command.getString("topic"), MessageSelector.bySql(expression));
        } else {
            consumer.subscribe(command.getString("topic"), expression);
        }
        consumer.start();
        try {
            JSONArray messages = poll(consumer, command);
            consumer.commitSync();
            JSONObject answer = new JSONObject();
            answer.put("messages", messages);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * Read all queues of a topic from "offset" on, whatever its group has committed.
     *
     * <p>The task that assign() starts for a queue may be between its look whether it is cancelled and its look for a seek
     * when seek() is called: then it takes the seek's offset and ends, and the task that seek() has started begins where
     * the group is, or where the first task was (DefaultLitePullConsumerImpl.nextPullOffset); or what that has pulled
     * comes beside what was sought. So whoever gets something from before the place where they are, or nothing for long,
     * has to seek again.
     */
    JSONObject read(JSONObject command) throws Exception {
        DefaultLitePullConsumer consumer = consumer(command);
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(command.getString("topic"));
            consumer.assign(queues);
            Map<Integer, Long> next = new HashMap<>();
            for (MessageQueue queue : queues) {
                next.put(queue.getQueueId(), command.getLongValue("offset"));
                consumer.seek(queue, command.getLongValue("offset"));
            }
            JSONArray messages = new JSONArray();
            long deadline = deadline(command);
            int empty = 0;
            while (messages.size() < command.getIntValue("count") && System.nanoTime() < deadline) {
                List<MessageExt> polled = consumer.poll(100); // all of one queue
                if (polled.isEmpty()) {
                    empty++;
                    if (empty % POLLS_BEFORE_ANOTHER_SEEK == 0) {
                        for (MessageQueue queue : queues) {
                            consumer.seek(queue, next.get(queue.getQueueId()));
                        }
                    }
                    continue;
                }
                MessageExt last = polled.get(polled.size() - 1);
                MessageQueue queue = new MessageQueue(last.getTopic(), last.getBrokerName(), last.getQueueId());
                if (polled.get(0).getQueueOffset() < next.get(queue.getQueueId())) {
                    consumer.seek(queue, next.get(queue.getQueueId()));
                    continue;
                }
                next.put(queue.getQueueId(), last.getQueueOffset() + 1);
                add(messages, polled);
            }
            JSONObject answer = new JSONObject();
            answer.put("messages", messages);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    /** Poll as the only member of a group from its first offset, counting only: the other side of a benchmark. */
    JSONObject count(JSONObject command) throws Exception {
        int count = command.getIntValue("count");
        DefaultLitePullConsumer consumer = consumer(command);
        consumer.setAutoCommit(true);
        consumer.setPullBatchSize(JavaPeer.number(command, "pullBatchSize", 32));
        consumer.subscribe(command.getString("topic"), "*");
        consumer.start();
        long messages = 0;
        long begun = 0;
        long cpuBegun = 0;
        long deadline = deadline(command);
        try {
            while (messages < count && System.nanoTime() < deadline) {
                List<MessageExt> polled = consumer.poll(100);
                if (messages == 0 && !polled.isEmpty()) {
                    begun = System.nanoTime();
                    cpuBegun = Consuming.SYSTEM.getProcessCpuTime();
                }
                messages += polled.size();
            }
            JSONObject answer = new JSONObject();
            answer.put("complete", messages >= count);
            answer.put("messages", messages);
            answer.put("seconds", (System.nanoTime() - begun) / 1e9);
            answer.put("cpuSeconds", (Consuming.SYSTEM.getProcessCpuTime() - cpuBegun) / 1e9);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    private DefaultLitePullConsumer consumer(JSONObject command) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.getString("group"), Access.hook());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000); // see Consuming
        consumer.setAutoCommit(false);
        return consumer;
    }

    private static JSONArray poll(DefaultLitePullConsumer consumer, JSONObject command) {
        JSONArray messages = new JSONArray();
        long deadline = deadline(command);
        while (messages.size() < command.getIntValue("count") && System.nanoTime() < deadline) {
            add(messages, consumer.poll(100));
        }
        return messages;
    }

    private static void add(JSONArray messages, List<MessageExt> polled) {
        long now = System.currentTimeMillis();
        polled.forEach(message -> messages.add(Consuming.fields(message, now)));
    }

    private static long deadline(JSONObject command) {
        return System.nanoTime() + (long) (command.getDoubleValue("timeout") * 1e9);
    }
}
