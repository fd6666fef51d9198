//! One line of metrics for each invocation of a function, in CloudWatch's embedded metric format. Counts and
//! times only: no entity, no URL, no payload (I12).

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The version of the line, which readers may rely on.
pub const METRICS_VERSION: &str = "1.0.0";
/// Where CloudWatch files the metrics.
pub const METRICS_NAMESPACE: &str = "Tidemark";

/// What one invocation measured. What a function cannot know is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Metrics {
    /// From the oldest sighting to its commit, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness_lag_ms: Option<u64>,
    /// Looks that found nothing new: 304, or the same validators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_modified: Option<u64>,
    /// Looks that found something to handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// Bytes that did not have to be downloaded again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_saved: Option<u64>,
    /// Copies that were stopped at the door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_hits: Option<u64>,
    /// Candidates that were accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// Requests that were refused (I10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// Committed changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<u64>,
    /// Candidates that turned out to be nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_ops: Option<u64>,
    /// The share of settled candidates that were judged by the digest of their bytes, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_coverage: Option<f64>,
    /// The share of candidates that could be handled, of those that ended here, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<f64>,
    /// Messages that were given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_lettered: Option<u64>,
    /// Messages that will be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Messages that wait for another worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<u64>,
    /// Looks that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Streams on which nothing came for longer than their source bears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<u64>,
    /// Sources of which somebody was told that they fail again and again: once, and daily while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources_failing: Option<u64>,
    /// Looks that were put off, since their host is unwell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postponed: Option<u64>,
    /// Changes that got their place in the feed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<u64>,
    /// How long the invocation took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// 1 for the first invocation of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start: Option<u64>,
}

/// The line itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "metrics")]
pub struct MetricsLine {
    /// What CloudWatch needs to find the metrics in this line.
    #[serde(rename = "_aws")]
    pub aws: MetricsMetadata,
    /// The version of this line.
    #[schemars(extend("const" = METRICS_VERSION))]
    pub tidemark_metrics: Cow<'static, str>,
    /// Which stack.
    #[serde(rename = "Stack")]
    pub stack: String,
    /// Which function.
    #[serde(rename = "Function")]
    pub function: String,
    /// Which invocation, to find its log lines.
    pub request_id: String,
    /// What it measured.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// What CloudWatch needs to find metrics in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct MetricsMetadata {
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// Exactly one directive.
    pub cloud_watch_metrics: Vec<MetricsDirective>,
}

/// Which members of the line are metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct MetricsDirective {
    /// Always `Tidemark`.
    pub namespace: Cow<'static, str>,
    /// Always by stack and function.
    pub dimensions: Vec<Vec<Cow<'static, str>>>,
    /// The metrics that are there.
    pub metrics: Vec<MetricDefinition>,
}

/// One metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct MetricDefinition {
    /// The member of the line.
    pub name: String,
    /// CloudWatch's word for what it counts.
    pub unit: Cow<'static, str>,
}

impl Metrics {
    /// The line of one invocation.
    pub fn line(self, stack: &str, function: &str, request_id: &str, now: Timestamp) -> MetricsLine {
        let present: BTreeMap<String, serde_json::Value> = serde_json::to_value(&self).and_then(serde_json::from_value).unwrap_or_default();
        let metrics = present.into_keys().map(|name| MetricDefinition { unit: unit(&name).into(), name }).collect();
        let dimensions = vec![vec!["Stack".into(), "Function".into()]];
        let directive = MetricsDirective { namespace: METRICS_NAMESPACE.into(), dimensions, metrics };
        MetricsLine {
            aws: MetricsMetadata { timestamp: now.as_millis(), cloud_watch_metrics: vec![directive] },
            tidemark_metrics: METRICS_VERSION.into(),
            stack: stack.to_owned(),
            function: function.to_owned(),
            request_id: request_id.to_owned(),
            metrics: self,
        }
    }
}

fn unit(name: &str) -> &'static str {
    match name {
        "FreshnessLagMs" | "DurationMs" => "Milliseconds",
        "BytesSaved" => "Bytes",
        "DigestCoverage" | "Validity" => "None",
        _ => "Count",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_declares_exactly_the_metrics_that_it_has() {
        let metrics = Metrics { changes: Some(2), freshness_lag_ms: Some(1500), validity: Some(1.0), ..Metrics::default() };
        let line = serde_json::to_value(metrics.line("tide", "handler", "r-1", Timestamp::from_millis(7))).unwrap();
        let declared = &line["_aws"]["CloudWatchMetrics"][0]["Metrics"];
        let names: Vec<&str> = declared.as_array().unwrap().iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Changes", "FreshnessLagMs", "Validity"]);
        assert_eq!(declared[1]["Unit"], "Milliseconds");
        assert_eq!((&line["Changes"], &line["Function"], &line["_aws"]["Timestamp"]), (&2.into(), &"handler".into(), &7.into()));
        let dimensions = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"][0].as_array().unwrap();
        assert!(dimensions.iter().all(|name| line[name.as_str().unwrap()].is_string()), "CloudWatch reads them from the line");
    }
}
