import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The push consumer: gathers what it gets until it has enough or the time is up, or only counts.
 *
 * <p>What it gathered it tells in the order in which its listener was called: with an orderly one, that is the order of
 * each queue. A message whose body is among its "failures" fails until it was consumed again that often.
 */
final class Consuming {
    static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final String nameServer;

    Consuming(String nameServer) {
        this.nameServer = nameServer;
    }

    JSONObject consume(JSONObject command) throws Exception {
        int wanted = command.getIntValue("count");
        ConcurrentLinkedQueue<JSONObject> received = new ConcurrentLinkedQueue<>();
        boolean different = Boolean.TRUE.equals(command.getBoolean("different"));
        Set<ByteBuffer> bodies = ConcurrentHashMap.newKeySet();
        AtomicLong count = new AtomicLong();
        CountDownLatch enough = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(command, messages -> {
            long now = System.currentTimeMillis();
            messages.forEach(message -> received.add(fields(message, now)));
            messages.forEach(message -> bodies.add(ByteBuffer.wrap(message.getBody())));
            long all = count.addAndGet(messages.size());
            if ((different ? bodies.size() : all) >= wanted) {
                enough.countDown();
            }
        });
        consumer.start();
        try {
            enough.await((long) (command.getDoubleValue("timeout") * 1000), TimeUnit.MILLISECONDS);
        } finally {
            consumer.shutdown();
        }
        JSONArray messages = new JSONArray();
        messages.addAll(received);
        JSONObject answer = new JSONObject();
        answer.put("messages", messages);
        return answer;
    }

    JSONObject count(JSONObject command) throws Exception {
        long wanted = command.getLongValue("count");
        AtomicLong count = new AtomicLong();
        AtomicLong firstNanos = new AtomicLong();
        AtomicLong firstCpu = new AtomicLong();
        AtomicLong lastNanos = new AtomicLong();
        AtomicLong lastCpu = new AtomicLong();
        CountDownLatch enough = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(command, messages -> {
            if (firstNanos.get() == 0 && firstNanos.compareAndSet(0, System.nanoTime())) {
                firstCpu.set(SYSTEM.getProcessCpuTime());
            }
            long total = count.addAndGet(messages.size());
            if (total >= wanted && lastNanos.compareAndSet(0, System.nanoTime())) {
                lastCpu.set(SYSTEM.getProcessCpuTime());
                enough.countDown();
            }
        });
        long cpuBeforeStart = SYSTEM.getProcessCpuTime();
        long started = System.nanoTime();
        consumer.start();
        boolean complete;
        try {
            complete = enough.await((long) (command.getDoubleValue("timeout") * 1000), TimeUnit.MILLISECONDS);
            if (!complete) {
                lastNanos.compareAndSet(0, System.nanoTime());
                lastCpu.compareAndSet(0, SYSTEM.getProcessCpuTime());
            }
        } finally {
            consumer.shutdown();
        }
        JSONObject answer = new JSONObject();
        answer.put("complete", complete);
        answer.put("messages", count.get());
        answer.put("seconds", firstNanos.get() == 0 ? 0.0 : (lastNanos.get() - firstNanos.get()) / 1e9);
        answer.put("cpuSeconds", firstNanos.get() == 0 ? 0.0 : (lastCpu.get() - firstCpu.get()) / 1e9);
        answer.put("secondsSinceStart", (lastNanos.get() - started) / 1e9);
        answer.put("cpuSecondsSinceStart", (lastCpu.get() - cpuBeforeStart) / 1e9);
        return answer;
    }

    private interface Sink {
        void accept(List<MessageExt> messages);
    }

    private DefaultMQPushConsumer consumer(JSONObject command, Sink sink) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            command.getString("group"), Access.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        if (JavaPeer.text(command, "namespace", null) != null) {
            consumer.setNamespace(command.getString("namespace"));
        }
        consumer.setInstanceName(JavaPeer.text(command, "instance", UUID.randomUUID().toString()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // The client of 5.5.0 sometimes loses the heartbeat that carries a new subscription ("lock heartBeat, but
        // failed"), and the broker then refuses its pulls ("subscription not latest") until the next one.
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeMessageBatchMaxSize(JavaPeer.number(command, "batchSize", 1));
        consumer.setPullBatchSize(JavaPeer.number(command, "pullBatchSize", 32));
        // What the last call of the listener came to is told before the consumer leaves.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.setMaxReconsumeTimes(JavaPeer.number(command, "maxReconsumeTimes", -1));
        consumer.setSuspendCurrentQueueTimeMillis(JavaPeer.number(command, "suspendMillis", 1000));
        if (Boolean.TRUE.equals(command.getBoolean("broadcasting"))) {
            // An enum that changed its package in RocketMQ 5.
            var model = consumer.getMessageModel();
            consumer.setMessageModel(Enum.valueOf(model.getDeclaringClass(), "BROADCASTING"));
        }
        if (Boolean.TRUE.equals(command.getBoolean("brokerRebalance"))) {
            // Only RocketMQ 5 has it.
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        JSONObject failures = command.get("failures") == null ? new JSONObject() : command.getJSONObject("failures");
        if (!failures.isEmpty()) {
            // The retry topic is made when the consumer has introduced itself, after it has asked for its route.
            consumer.setPollNameServerInterval(100);
        }
        int failureLevel = JavaPeer.number(command, "failureLevel", 0);
        String expression = JavaPeer.text(command, "expression", "*");
        if (Boolean.TRUE.equals(command.getBoolean("sql"))) {
            consumer.subscribe(command.getString("topic"), MessageSelector.bySql(expression));
        } else {
            consumer.subscribe(command.getString("topic"), expression);
        }
        if (Boolean.TRUE.equals(command.getBoolean("orderly"))) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                sink.accept(messages);
                return fail(messages, failures)
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                sink.accept(messages);
                context.setDelayLevelWhenNextConsume(failureLevel);
                return fail(messages, failures)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        return consumer;
    }

    private static boolean fail(List<MessageExt> messages, JSONObject failures) {
        return messages.stream().anyMatch(message -> message.getReconsumeTimes()
            < failures.getIntValue(new String(message.getBody(), StandardCharsets.UTF_8)));
    }

    static JSONObject fields(MessageExt message, long consumedTimestamp) {
        JSONObject fields = new JSONObject();
        fields.put("consumedTimestamp", consumedTimestamp);
        fields.put("topic", message.getTopic());
        fields.put("brokerName", message.getBrokerName());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("properties", message.getProperties());
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        fields.put("bodyCRC", message.getBodyCRC());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("bornHost", address(message.getBornHost()));
        fields.put("storeHost", address(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("flag", message.getFlag());
        fields.put("commitLogOffset", message.getCommitLogOffset());
        fields.put("storeSize", message.getStoreSize());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        return fields;
    }

    private static String address(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + ":" + internet.getPort();
    }
}
