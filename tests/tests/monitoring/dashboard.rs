//! Checks of `manifests/monitoring/dashboard.json`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde::Deserialize;
use tests::repository;

use crate::promql;
use crate::promtool::promtool;

#[derive(Deserialize)]
struct Dashboard {
    uid: String,
    panels: Vec<Panel>,
    annotations: Annotations,
    templating: Templating,
}

#[derive(Deserialize)]
struct Annotations {
    list: Vec<Annotation>,
}

#[derive(Deserialize)]
struct Annotation {
    name: String,
    expr: String,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    definition: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Panel {
    id: u32,
    #[serde(rename = "type")]
    kind: String,
    title: String,
    grid_pos: GridPos,
    /// The minimum interval between two points.
    interval: Option<String>,
    #[serde(default)]
    targets: Vec<Target>,
    /// The panels of a collapsed row.
    #[serde(default)]
    panels: Vec<Panel>,
}

#[derive(Deserialize, Clone, Copy)]
struct GridPos {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

impl GridPos {
    fn overlaps(self, other: Self) -> bool {
        let apart = |a: u32, len: u32, b: u32, other: u32| a + len <= b || b + other <= a;
        !apart(self.x, self.w, other.x, other.w) && !apart(self.y, self.h, other.y, other.h)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    ref_id: String,
    expr: String,
    legend_format: String,
    datasource: Datasource,
}

#[derive(Deserialize)]
struct Datasource {
    #[serde(rename = "type")]
    kind: String,
    uid: String,
}

/// The dashboard. The panels of collapsed rows follow their row.
fn dashboard() -> Dashboard {
    let path = repository().join("manifests/monitoring/dashboard.json");
    let mut dashboard: Dashboard =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let unfold = |mut panel: Panel| {
        let folded = std::mem::take(&mut panel.panels);
        std::iter::once(panel).chain(folded)
    };
    dashboard.panels = dashboard.panels.into_iter().flat_map(unfold).collect();
    dashboard
}

/// The expressions of all annotations and panels. The first text names the annotation or the panel.
fn expressions(dashboard: &Dashboard) -> Vec<(String, &str)> {
    let annotations = dashboard.annotations.list.iter();
    let annotations =
        annotations.map(|note| (format!("annotation {:?}", note.name), note.expr.as_str()));
    let panels = dashboard.panels.iter().flat_map(|panel| {
        panel
            .targets
            .iter()
            .map(|target| (format!("panel {:?}", panel.title), target.expr.as_str()))
    });
    annotations.chain(panels).collect()
}

/// The expressions of each panel, by title. Rows are left out.
pub(crate) fn panel_expressions() -> Vec<(String, Vec<String>)> {
    let panels = dashboard().panels.into_iter();
    panels
        .filter(|panel| panel.kind != "row")
        .map(|panel| {
            let targets = panel.targets.into_iter();
            (panel.title, targets.map(|target| target.expr).collect())
        })
        .collect()
}

#[test]
fn panels_query_existing_metrics() {
    let dashboard = dashboard();
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 50);
    for (whose, expression) in expressions {
        promql::check(&whose, expression);
        let named = promql::named(expression);
        for (metric, matchers) in &named.metrics {
            let by = |label: &str, variable: &str| {
                matchers
                    .iter()
                    .any(|(name, value)| name == label && value == variable)
            };
            let chosen = by("namespace", "$namespace") && by("pod", "$pod");
            assert!(
                chosen,
                "{whose}: {metric} is not limited to the chosen pods"
            );
        }
    }
    for variable in dashboard
        .templating
        .list
        .iter()
        .filter(|variable| variable.name != "datasource")
    {
        let query = variable.definition.strip_prefix("label_values(").unwrap();
        promql::check(&variable.name, query.split_once([',', '{']).unwrap().0);
    }
}

/// A legend uses only labels that its expression lists after a word such as `by` or `on`.
#[test]
fn legends_show_only_grouping_labels() {
    for panel in &dashboard().panels {
        for target in &panel.targets {
            let kept = promql::named(&target.expr).grouping;
            let shown = target
                .legend_format
                .split("{{")
                .skip(1)
                .map(|part| part.split_once("}}").unwrap().0);
            for label in shown {
                assert!(
                    kept.contains(label),
                    "{}: the legend has {{{{{label}}}}}, which the expression does not list: {}",
                    panel.title,
                    target.expr
                );
            }
        }
    }
}

/// The dashboard begins with the verdict. The rows that are not collapsed show the findings and the
/// upstreams. More than five rows are collapsed.
#[test]
fn verdict_is_first_and_many_rows_are_collapsed() {
    let path = repository().join("manifests/monitoring/dashboard.json");
    let dashboard: Dashboard = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let seen: Vec<&Panel> = dashboard
        .panels
        .iter()
        .filter(|panel| panel.kind != "row")
        .collect();
    assert_eq!(seen[0].title, "Verdict");
    for metric in ["kubedns_verdict_findings", "kubedns_upstream_up"] {
        let shown = seen
            .iter()
            .flat_map(|panel| &panel.targets)
            .any(|target| target.expr.contains(metric));
        assert!(shown, "only collapsed rows, or no rows, show {metric}");
    }
    let folded = dashboard
        .panels
        .iter()
        .filter(|panel| panel.kind == "row" && !panel.panels.is_empty());
    assert!(folded.count() > 5);
}

#[test]
fn panels_do_not_overlap() {
    let dashboard = dashboard();
    assert_eq!(dashboard.uid, "kube-dns-rs");
    let ids: BTreeSet<u32> = dashboard.panels.iter().map(|panel| panel.id).collect();
    assert_eq!(ids.len(), dashboard.panels.len(), "duplicate id");
    let titles: BTreeSet<&str> = dashboard
        .panels
        .iter()
        .map(|panel| panel.title.as_str())
        .collect();
    assert_eq!(titles.len(), dashboard.panels.len(), "duplicate title");
    for (at, panel) in dashboard.panels.iter().enumerate() {
        assert!(
            panel.grid_pos.x + panel.grid_pos.w <= 24,
            "{} ends beyond column 24",
            panel.title
        );
        for other in &dashboard.panels[at + 1..] {
            assert!(
                !panel.grid_pos.overlaps(other.grid_pos),
                "{} and {} overlap",
                panel.title,
                other.title
            );
        }
        assert_eq!(
            panel.targets.is_empty(),
            panel.kind == "row",
            "{}",
            panel.title
        );
        let refs: BTreeSet<&str> = panel
            .targets
            .iter()
            .map(|target| target.ref_id.as_str())
            .collect();
        assert_eq!(
            refs.len(),
            panel.targets.len(),
            "{}: two queries have the same refId",
            panel.title
        );
        for target in &panel.targets {
            let source = (
                target.datasource.kind.as_str(),
                target.datasource.uid.as_str(),
            );
            assert_eq!(source, ("prometheus", "${datasource}"), "{}", panel.title);
        }
    }
}

/// promtool parses the expressions as recording rules.
#[test]
fn expressions_are_well_formed() {
    let dashboard = dashboard();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (number, (_, expression)) in expressions(&dashboard).into_iter().enumerate() {
        let plain = expression
            .replace("$__rate_interval", "1m")
            .replace("$namespace", ".*")
            .replace("$pod", ".*");
        assert!(!plain.contains('$'), "an unknown variable: {plain}");
        let quoted = serde_json::to_string(&plain).unwrap();
        writeln!(rules, "  - {{record: panel_{number}, expr: {quoted}}}").unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("dashboard.yaml"), rules).unwrap();
    promtool(directory.path(), &["check", "rules", "dashboard.yaml"]);
}

/// A time series panel that uses `increase()` counts each event in exactly one point. With points a
/// minute apart, `$__rate_interval` is 75 s: this minute plus the 15 s between scrapes. Adjacent
/// windows then share one sample, and no event is lost between them. With points 15 s apart,
/// `$__rate_interval` would be 60 s, so each event would be counted in three points.
#[test]
fn each_event_counts_once() {
    let dashboard = dashboard();
    let lines = dashboard
        .panels
        .iter()
        .filter(|panel| panel.kind == "timeseries");
    let counting: Vec<&Panel> = lines
        .filter(|panel| {
            panel
                .targets
                .iter()
                .any(|target| target.expr.contains("increase("))
        })
        .collect();
    assert!(!counting.is_empty());
    for panel in counting {
        assert_eq!(panel.interval.as_deref(), Some("1m"), "{}", panel.title);
        for target in panel
            .targets
            .iter()
            .filter(|target| target.expr.contains("increase("))
        {
            assert!(
                target.expr.contains("[$__rate_interval]"),
                "{}: {}",
                panel.title,
                target.expr
            );
        }
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("events.yaml"), EVENTS).unwrap();
    promtool(directory.path(), &["test", "rules", "events.yaml"]);
}

/// A test for promtool with four windows, and with five events at consecutive scrapes. The second
/// window has four events, and the third window has one.
const EVENTS: &str = r#"
evaluation_interval: 15s
tests:
- interval: 15s
  input_series:
  - {series: 'events{at="135s"}', values: 0x8 1x20}
  - {series: 'events{at="150s"}', values: 0x9 1x20}
  - {series: 'events{at="165s"}', values: 0x10 1x20}
  - {series: 'events{at="180s"}', values: 0x11 1x20}
  - {series: 'events{at="195s"}', values: 0x12 1x20}
  promql_expr_test:
  - {expr: 'count(increase(events[75s]) > 0)', eval_time: 127s, exp_samples: []}
  - {expr: 'count(increase(events[75s]) > 0)', eval_time: 187s, exp_samples: [{labels: '{}', value: 4}]}
  - {expr: 'count(increase(events[75s]) > 0)', eval_time: 247s, exp_samples: [{labels: '{}', value: 1}]}
  - {expr: 'count(increase(events[75s]) > 0)', eval_time: 307s, exp_samples: []}
"#;
