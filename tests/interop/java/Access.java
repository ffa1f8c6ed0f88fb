import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Signs what the Java client sends, if the program was started with -Dpeer.accessKey and -Dpeer.secretKey. */
final class Access {
    static RPCHook hook() {
        String accessKey = System.getProperty("peer.accessKey");
        if (accessKey == null) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(accessKey, System.getProperty("peer.secretKey")));
    }

    private Access() {
    }
}
