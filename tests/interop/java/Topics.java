import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.UUID;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Creates topics on every master, as mqadmin does. */
final class Topics {
    private final String nameServer;

    Topics(String nameServer) {
        this.nameServer = nameServer;
    }

    JSONObject create(JSONObject command) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        JSONArray created = new JSONArray();
        try {
            int queues = JavaPeer.number(command, "queues", 8);
            TopicConfig config = new TopicConfig(command.getString("topic"), queues, queues,
                JavaPeer.number(command, "perm", 6));
            var brokers = admin.examineBrokerClusterInfo().getBrokerAddrTable();
            for (var broker : brokers.values()) {
                String master = broker.getBrokerAddrs().get(0L);
                if (master != null) {
                    admin.createAndUpdateTopicConfig(master, config);
                    created.add(broker.getBrokerName());
                }
            }
            if (created.isEmpty()) {
                throw new IllegalStateException("no master is registered");
            }
            awaitRoute(admin, config.getTopicName(), created.size());
        } finally {
            admin.shutdown();
        }
        JSONObject answer = new JSONObject();
        answer.put("brokers", created);
        return answer;
    }

    /** The brokers tell the name servers at their own pace. */
    private static void awaitRoute(DefaultMQAdminExt admin, String topic, int brokers) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (System.nanoTime() < deadline) {
            try {
                if (admin.examineTopicRouteInfo(topic).getQueueDatas().size() >= brokers) {
                    return;
                }
            } catch (Exception notYet) {
                // asked again below
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("the name servers list no route of " + topic + " on all masters after 30 s");
    }
}
