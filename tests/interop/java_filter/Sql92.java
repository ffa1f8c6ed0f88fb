import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * RocketMQ's own filter: reads {"expressions": [...], "properties": [{...}, ...]}, writes one list per expression with
 * what each property set gives: true, false, null or "error"; or "rejected" instead of the list.
 */
public class Sql92 {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JSONObject asked = JSON.parseObject(in.readLine());
        JSONArray answers = new JSONArray();
        for (Object text : asked.getJSONArray("expressions")) {
            answers.add(answer((String) text, asked.getJSONArray("properties")));
        }
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        out.println(JSON.toJSONString(answers, com.alibaba.fastjson.serializer.SerializerFeature.WriteMapNullValue));
    }

    private static Object answer(String text, JSONArray sets) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable error) {
            return "rejected";
        }
        JSONArray results = new JSONArray();
        for (int i = 0; i < sets.size(); i++) {
            Map<String, String> properties = new HashMap<>();
            for (Map.Entry<String, Object> entry : sets.getJSONObject(i).entrySet()) {
                properties.put(entry.getKey(), (String) entry.getValue());
            }
            try {
                results.add(expression.evaluate(new MessageEvaluationContext(properties)));
            } catch (Throwable error) {
                results.add("error");
            }
        }
        return results;
    }
}
