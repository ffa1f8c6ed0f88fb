import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The Java client on request: reads one JSON command per line, answers one JSON line per command, in any order.
 *
 * <p>A command has an "id", which its answer repeats, and a "command". The answer has "ok" and either what the command
 * returns or an "error". Commands run at the same time: a consumer can wait while a producer sends. It compiles and runs
 * with the jars of RocketMQ 4.9.7 and 5.5.0; what differs between them is left to the compiler (var) to see.
 */
public final class JavaPeer {
    public static void main(String[] arguments) throws Exception {
        // Libraries that log to standard output would garble the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Producing producing = new Producing(arguments[0]);
        Consuming consuming = new Consuming(arguments[0]);
        Topics topics = new Topics(arguments[0]);
        Requesting requesting = new Requesting(arguments[0]);
        Transacting transacting = new Transacting(arguments[0]);
        ProduceBenchmark benchmark = new ProduceBenchmark(arguments[0]);
        ConsumeBenchmark consumeBenchmark = new ConsumeBenchmark(arguments[0]);
        LitePulling litePulling = new LitePulling(arguments[0]);
        Members members = new Members(arguments[0]);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject command = JSON.parseObject(line);
            if (command.getString("command").equals("exit")) {
                break;
            }
            workers.execute(() -> {
                JSONObject answer = new JSONObject();
                try {
                    answer = switch (command.getString("command")) {
                        case "ping" -> new JSONObject();
                        case "produce" -> producing.produce(command);
                        case "produce-by-keys" -> producing.produceByKeys(command);
                        case "produce-benchmark" -> benchmark.run(command);
                        case "produce-steadily" -> consumeBenchmark.produceSteadily(command);
                        case "consume-latency" -> consumeBenchmark.consumeLatency(command);
                        case "recall" -> producing.recall(command);
                        case "lite-pull" -> litePulling.pull(command);
                        case "lite-read" -> litePulling.read(command);
                        case "lite-count" -> litePulling.count(command);
                        case "request" -> requesting.request(command);
                        case "reply" -> requesting.reply(command);
                        case "transact" -> transacting.transact(command);
                        case "consume" -> consuming.consume(command);
                        case "consume-count" -> consuming.count(command);
                        case "allocate" -> Allocating.allocate(command);
                        case "member-start" -> members.start(command);
                        case "member-assignment" -> members.assignment(command);
                        case "member-received" -> members.received(command);
                        case "member-stop" -> members.stop(command);
                        case "create-topic" -> topics.create(command);
                        default -> throw new IllegalArgumentException("unknown command " + command);
                    };
                    answer.put("ok", true);
                } catch (Throwable problem) {
                    problem.printStackTrace();
                    answer.put("ok", false);
                    answer.put("error", problem.toString());
                }
                answer.put("id", command.get("id"));
                byte[] bytes = (answer.toJSONString() + "\n").getBytes(StandardCharsets.UTF_8);
                synchronized (answers) {
                    answers.write(bytes, 0, bytes.length);
                    answers.flush();
                }
            });
        }
        // Without the client's own shutdown, which takes seconds: the broker sees the connections go.
        Runtime.getRuntime().halt(0);
    }

    static String text(JSONObject command, String name, String otherwise) {
        return command.containsKey(name) && command.get(name) != null ? command.getString(name) : otherwise;
    }

    static int number(JSONObject command, String name, int otherwise) {
        return command.containsKey(name) && command.get(name) != null ? command.getIntValue(name) : otherwise;
    }

    static JSONArray list(JSONObject command, String name) {
        return command.get(name) != null ? command.getJSONArray(name) : new JSONArray();
    }

    private JavaPeer() {
    }
}
