import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Java's own strategies: which queues does each member get? Needs no broker. */
final class Allocating {
    private Allocating() {
    }

    /**
     * Answers "shares": for each of "asked", the queues that it gets, each as [topic, broker name, queue id].
     *
     * <p>The machine room of a queue or a client is what its broker name or id begins with, up to the first "@".
     */
    static JSONObject allocate(JSONObject command) {
        AllocateMessageQueueStrategy strategy = strategy(command.getString("strategy"), command);
        List<MessageQueue> queues = queues(command.getJSONArray("queues"));
        List<String> members = command.getJSONArray("members").toJavaList(String.class);
        JSONArray shares = new JSONArray();
        for (String member : command.getJSONArray("asked").toJavaList(String.class)) {
            JSONArray share = new JSONArray();
            for (MessageQueue queue : strategy.allocate("group", member, queues, members)) {
                JSONArray fields = new JSONArray();
                fields.add(queue.getTopic());
                fields.add(queue.getBrokerName());
                fields.add(queue.getQueueId());
                share.add(fields);
            }
            shares.add(share);
        }
        JSONObject answer = new JSONObject();
        answer.put("name", strategy.getName());
        answer.put("shares", shares);
        return answer;
    }

    /** With "roomAfterIp" a client's room is in its instance name, "room-...": real client ids begin with an IP. */
    static AllocateMessageQueueStrategy strategy(String name, JSONObject command) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(JavaPeer.number(command, "virtualNodes", 10));
            case "CONFIG": {
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(queues(command.getJSONArray("configured")));
                return byConfig;
            }
            case "MACHINE_ROOM": {
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(command.getJSONArray("rooms").toJavaList(String.class)));
                return byRoom;
            }
            default: {
                String inner = name.substring("MACHINE_ROOM_NEARBY-".length());
                boolean afterIp = command.getBooleanValue("roomAfterIp");
                return new AllocateMachineRoomNearby(strategy(inner, command), new Rooms(afterIp));
            }
        }
    }

    private static List<MessageQueue> queues(JSONArray rows) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < rows.size(); i++) {
            JSONArray row = rows.getJSONArray(i);
            queues.add(new MessageQueue(row.getString(0), row.getString(1), row.getIntValue(2)));
        }
        return queues;
    }

    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        private final boolean afterIp;

        Rooms(boolean afterIp) {
            this.afterIp = afterIp;
        }

        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@", 2)[0];
        }

        @Override
        public String consumerDeployIn(String client) {
            return afterIp ? client.split("@", 2)[1].split("-", 2)[0] : client.split("@", 2)[0];
        }
    }
}
