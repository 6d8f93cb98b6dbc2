import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * Makes each use of a FlexiMQ table in a query read only the columns and the rows that this use needs.
 *
 * <p>Each use gets a data source of its own, so the conditions of one use cannot restrict another. Conditions also stay
 * in the plan. Spark compiles this file when optimizer_rule.py installs it.
 */
public final class NarrowReads extends Rule {
    private static final String PUSH_DOWN = "spark.sql.python.filterPushdown.enabled";
    private static final String OPTION = "pushFilters";

    /** The scans that this rule has made; Spark applies a rule until it changes nothing. */
    private final Set made = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

    public TreeNode apply(TreeNode plan) {
        // With this setting Spark has pushed the conditions itself, and removed them from the plan.
        return SQLConf.get().pythonFilterPushDown() ? plan : narrowed((LogicalPlan) plan, null, new ArrayList());
    }

    /** Return a plan of which only these columns, or all for null, of rows with these conditions are used. */
    private LogicalPlan narrowed(LogicalPlan plan, Set needed, List conditions) {
        if (plan instanceof DataSourceV2ScanRelation) {
            DataSourceV2ScanRelation found = (DataSourceV2ScanRelation) plan;
            boolean isOurs = found.relation().table() instanceof PythonTable
                && found.relation().table().name().equalsIgnoreCase("fleximq");
            return isOurs && !made.contains(found.scan()) ? read(found, needed, conditions) : plan;
        }
        boolean isFilter = plan instanceof Filter;
        if (!isFilter) {
            needed = plan instanceof Project ? idsOf(plan) : null;
        } else {
            addParts(((Filter) plan).condition(), conditions);
            if (needed != null) {
                needed.addAll(idsOf(plan));
            }
        }
        List children = new ArrayList();
        for (Iterator each = plan.children().iterator(); each.hasNext(); ) {
            children.add(narrowed((LogicalPlan) each.next(), needed, isFilter ? conditions : new ArrayList()));
        }
        return (LogicalPlan) plan.withNewChildren(seq(children));
    }

    private LogicalPlan read(DataSourceV2ScanRelation found, Set needed, List conditions) {
        ArrayList columns = new ArrayList();
        AttributeReference cheapest = null;
        for (Iterator each = found.output().iterator(); each.hasNext(); ) {
            AttributeReference column = (AttributeReference) each.next();
            if (needed == null || needed.contains(column.exprId())) {
                columns.add(column);
            }
            if (cheapest == null || column.name().equals("offset")) {
                cheapest = column;
            }
        }
        if (columns.isEmpty()) {
            // Arrow batches without columns have no rows to count.
            columns.add(cheapest);
        }
        StructType schema = new StructType();
        for (int place = 0; place < columns.size(); place++) {
            AttributeReference column = (AttributeReference) columns.get(place);
            schema = schema.add(column.name(), column.dataType(), column.nullable(), column.metadata());
        }
        Scan scan = scan(found.relation(), schema, filters(conditions, found.output()));
        made.add(scan);
        Object[] parts = new Object[found.productArity()];
        for (int place = 0; place < parts.length; place++) {
            parts[place] = found.productElement(place);
        }
        parts[1] = scan;
        parts[2] = seq(columns);
        return (LogicalPlan) found.makeCopy(parts);
    }

    private static Scan scan(
        DataSourceV2Relation relation, StructType schema, org.apache.spark.sql.sources.Filter[] filters
    ) {
        if (filters.length > 0) {
            try {
                return pushed(relation, schema, filters);
            } catch (Exception error) {
                // Python has no times beyond the year 9999.
                if (!String.valueOf(error.getMessage()).contains("OverflowError")) {
                    Platform.throwException(error);
                }
            }
        }
        return builder(relation, schema).build();
    }

    private static Scan pushed(
        DataSourceV2Relation relation, StructType schema, final org.apache.spark.sql.sources.Filter[] filters
    ) {
        final ScanBuilder builder = builder(relation, schema);
        SQLConf settings = SQLConf.get().clone();
        settings.setConfString(PUSH_DOWN, "true");
        return (Scan) SQLConf.withExistingConf(settings, new AbstractFunction0() {
            public Object apply() {
                ((SupportsPushDownFilters) builder).pushFilters(filters);
                return builder.build();
            }
        });
    }

    private static ScanBuilder builder(DataSourceV2Relation relation, StructType schema) {
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(relation.table().name());
        Map options = new HashMap(relation.options().asCaseSensitiveMap());
        if (!relation.options().containsKey(OPTION)) {
            options.put(OPTION, "true");
        }
        SupportsRead table = (SupportsRead) source.getTable(schema, new Transform[0], options);
        return table.newScanBuilder(new CaseInsensitiveStringMap(options));
    }

    private static org.apache.spark.sql.sources.Filter[] filters(List conditions, Seq output) {
        List found = new ArrayList();
        Seq spelled = DataSourceStrategy$.MODULE$.normalizeExprs(seq(conditions), output);
        for (Iterator each = spelled.iterator(); each.hasNext(); ) {
            Option filter = DataSourceStrategy$.MODULE$.translateFilter((Expression) each.next(), true);
            if (filter.isDefined()) {
                found.add(filter.get());
            }
        }
        return (org.apache.spark.sql.sources.Filter[]) found.toArray(new org.apache.spark.sql.sources.Filter[0]);
    }

    private static void addParts(Expression condition, List conditions) {
        if (condition instanceof And) {
            addParts(((And) condition).left(), conditions);
            addParts(((And) condition).right(), conditions);
        } else {
            conditions.add(condition);
        }
    }

    private static Set idsOf(LogicalPlan plan) {
        Set found = new HashSet();
        for (Iterator each = plan.references().iterator(); each.hasNext(); ) {
            found.add(((Attribute) each.next()).exprId());
        }
        return found;
    }

    private static Seq seq(List list) {
        return CollectionConverters.asScala(list).toList();
    }
}
