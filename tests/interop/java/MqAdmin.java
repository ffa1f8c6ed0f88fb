import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs several mqadmin commands in one JVM (starting one takes longer than any command): they are separated by "--" on
 * the command line. Of each, one line tells what it printed, in Base64. "tracedClients" is a command of our own.
 */
public class MqAdmin {
    public static void main(String[] args) throws Exception {
        PrintStream real = System.out;
        List<String> command = new ArrayList<>();
        // The first command loads a client's classes within its time-out, which is too short on a busy machine: it is one
        // that nobody looks at.
        System.setOut(new PrintStream(new ByteArrayOutputStream()));
        System.setErr(System.out);
        MQAdminStartup.main(new String[] {"clusterList", "-n", args[2]});
        for (String arg : args) {
            if (!arg.equals("--")) {
                command.add(arg);
                continue;
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream there = new PrintStream(printed, true, "UTF-8");
            System.setOut(there);
            System.setErr(there);
            if (command.get(0).equals("tracedClients")) {
                TracedClients.run(command.subList(1, command.size()).toArray(new String[0]));
            } else {
                MQAdminStartup.main(command.toArray(new String[0]));
            }
            there.flush();
            real.println("printed:" + Base64.getEncoder().encodeToString(printed.toByteArray()));
            real.flush();
            command.clear();
        }
        System.exit(0);
    }
}
