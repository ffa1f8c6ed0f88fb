import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends: one by one or in batches, to any queue, to one queue, or to the queue of a sharding key; waiting for each answer
 * ("sync"), for all of them at the end ("async"), or for none ("oneway").
 */
final class Producing {
    /** RocketMQ 4 has no constant for it. */
    private static final String SHARDING_KEY = "__SHARDINGKEY";

    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    Producing(String nameServer) {
        this.nameServer = nameServer;
    }

    JSONObject produce(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(
            JavaPeer.number(command, "compressOver", 4096), JavaPeer.text(command, "compressType", "ZLIB"),
            JavaPeer.text(command, "namespace", null));
        int batch = JavaPeer.number(command, "batch", 0);
        boolean receipts = !Boolean.FALSE.equals(command.getBoolean("receipts"));
        MessageQueue queue = command.get("brokerName") == null ? null : new MessageQueue(
            command.getString("topic"), command.getString("brokerName"), command.getIntValue("queueId"));
        String shardingKey = JavaPeer.text(command, "shardingKey", null);
        String mode = JavaPeer.text(command, "mode", "sync");
        if (!mode.equals("sync")) {
            return produceWithoutWaiting(command, producer, mode, queue, shardingKey);
        }

        JSONArray answers = new JSONArray();
        long began = System.nanoTime();
        List<Message> pending = new ArrayList<>();
        int count = JavaPeer.number(command, "count", JavaPeer.list(command, "bodies").size());
        for (int number = 0; number < count; number++) {
            Message message = message(command, number);
            SendResult result;
            if (batch > 0) {
                pending.add(message);
                if (pending.size() < batch && number < count - 1) {
                    continue;
                }
                result = queue == null ? producer.send(pending) : producer.send(pending, queue);
                pending = new ArrayList<>();
            } else if (queue != null) {
                result = producer.send(message, queue);
            } else if (shardingKey != null) {
                result = producer.send(message, new SelectMessageQueueByHash(), shardingKey);
            } else {
                result = producer.send(message);
            }
            if (receipts) {
                answers.add(receipt(result));
            }
        }
        JSONObject answer = new JSONObject();
        answer.put("count", count);
        answer.put("seconds", (System.nanoTime() - began) / 1e9);
        answer.put("receipts", answers);
        return answer;
    }

    private static JSONObject produceWithoutWaiting(JSONObject command, DefaultMQProducer producer, String mode,
        MessageQueue queue, String shardingKey) throws Exception {
        int count = JavaPeer.number(command, "count", JavaPeer.list(command, "bodies").size());
        List<CompletableFuture<SendResult>> sent = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message message = message(command, number);
            if (mode.equals("oneway")) {
                if (queue != null) {
                    producer.sendOneway(message, queue);
                } else if (shardingKey != null) {
                    producer.sendOneway(message, new SelectMessageQueueByHash(), shardingKey);
                } else {
                    producer.sendOneway(message);
                }
                continue;
            }
            CompletableFuture<SendResult> result = new CompletableFuture<>();
            sent.add(result);
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult sendResult) {
                    result.complete(sendResult);
                }

                @Override
                public void onException(Throwable problem) {
                    result.completeExceptionally(problem);
                }
            };
            if (queue != null) {
                producer.send(message, queue, callback);
            } else if (shardingKey != null) {
                producer.send(message, new SelectMessageQueueByHash(), shardingKey, callback);
            } else {
                producer.send(message, callback);
            }
        }
        JSONArray answers = new JSONArray();
        for (CompletableFuture<SendResult> result : sent) {
            answers.add(receipt(result.get(30, TimeUnit.SECONDS)));
        }
        JSONObject answer = new JSONObject();
        answer.put("count", count);
        answer.put("receipts", answers);
        return answer;
    }

    /** Take a timer message back by its handle; only RocketMQ 5 can. */
    JSONObject recall(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(4096, "ZLIB", null);
        JSONObject answer = new JSONObject();
        answer.put("msgId", DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(producer, command.getString("topic"), command.getString("handle")));
        return answer;
    }

    /** One message per sharding key, in their order, each to the queue that Java's own selector says. */
    JSONObject produceByKeys(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(4096, "ZLIB", null);
        JSONArray answers = new JSONArray();
        for (Object key : JavaPeer.list(command, "shardingKeys")) {
            Message message = new Message(command.getString("topic"), "by key".getBytes(StandardCharsets.UTF_8));
            answers.add(receipt(producer.send(message, new SelectMessageQueueByHash(), key)));
        }
        JSONObject answer = new JSONObject();
        answer.put("receipts", answers);
        return answer;
    }

    private static Message message(JSONObject command, int number) {
        JSONArray bodies = JavaPeer.list(command, "bodies");
        byte[] body = bodies.isEmpty()
            ? filler(JavaPeer.number(command, "size", 100), number)
            : Base64.getDecoder().decode(bodies.getString(number));
        return described(command, body);
    }

    /** A message with the tags, keys, flag, delay level, sharding key and properties that the command gives. */
    static Message described(JSONObject command, byte[] body) {
        Message message = new Message(command.getString("topic"), body);
        if (command.get("tags") != null) {
            message.setTags(command.getString("tags"));
        }
        if (command.get("keys") != null) {
            message.setKeys(command.getString("keys"));
        }
        if (command.get("flag") != null) {
            message.setFlag(command.getIntValue("flag"));
        }
        if (command.get("delayLevel") != null) {
            message.setDelayTimeLevel(command.getIntValue("delayLevel"));
        }
        // What setDelayTimeMs and setDeliverTimeMs of RocketMQ 5 do.
        if (command.get("timerDelayMs") != null) {
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", command.getString("timerDelayMs"));
        }
        if (command.get("timerDeliverMs") != null) {
            MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", command.getString("timerDeliverMs"));
        }
        if (command.get("shardingKey") != null) {
            MessageAccessor.putProperty(message, SHARDING_KEY, command.getString("shardingKey"));
        }
        if (command.get("properties") != null) {
            command.getJSONObject("properties").forEach((key, value) -> message.putUserProperty(key, value.toString()));
        }
        return message;
    }

    /** Bytes that don't compress well and differ from message to message, the same ones in every run. */
    private static byte[] filler(int size, int number) {
        byte[] body = new byte[size];
        new Random(number).nextBytes(body);
        return body;
    }

    static JSONObject receipt(SendResult result) {
        JSONObject receipt = new JSONObject();
        receipt.put("status", result.getSendStatus().name());
        receipt.put("msgId", result.getMsgId());
        receipt.put("offsetMsgId", result.getOffsetMsgId());
        receipt.put("brokerName", result.getMessageQueue().getBrokerName());
        receipt.put("queueId", result.getMessageQueue().getQueueId());
        receipt.put("queueOffset", result.getQueueOffset());
        receipt.put("recallHandle", recallHandle(result));
        return receipt;
    }

    private static Object recallHandle(SendResult result) {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException notInRocketMQ4) {
            return null;
        }
    }

    private synchronized DefaultMQProducer producer(int compressOver, String compressType, String namespace)
        throws Exception {
        String key = compressOver + compressType + namespace;
        if (!producers.containsKey(key)) {
            // Read by the constructor of RocketMQ 5; RocketMQ 4 knows zlib only.
            System.setProperty("rocketmq.message.compressType", compressType);
            DefaultMQProducer producer = new DefaultMQProducer("java-peer-producer-" + producers.size(), Access.hook());
            producer.setNamesrvAddr(nameServer);
            if (namespace != null) {
                producer.setNamespace(namespace);
            }
            producer.setInstanceName(UUID.randomUUID().toString());
            producer.setCompressMsgBodyOverHowmuch(compressOver);
            producer.setSendMsgTimeout(10_000);
            producer.start();
            producers.put(key, producer);
        }
        return producers.get(key);
    }
}
