//! Benchmarks of a server: the runs that a change starts, and the results that its status shows.
//! Pure.

use kube::ResourceExt;
use kube::api::ObjectMeta;
use kube::{Resource as _, core::object::HasStatus as _};
use tunedweb_api::benchmark_run::{BenchmarkRunSpec, Phase, Target};
use tunedweb_api::condition::{ConditionType, Reason};
use tunedweb_api::names::SERVER_LABEL;
use tunedweb_api::tuned_web_server::{Benchmark, BenchmarkResult, Trigger};
use tunedweb_api::{BenchmarkRun, TunedWebServer};
use tunedweb_measure::{ValidityState, VerdictState};

use crate::conditions::{Draft, Status};
use crate::hash;

/// Longest name of a run: pods and a ConfigMap carry it as a label.
const RUN_NAME_MAX: usize = 63;

/// Digits of the serving hash in a run's name.
const HASH_DIGITS: usize = 8;

/// Seconds beside the load itself: a minute for an image to be pulled, a minute to wait for the
/// server's address, and the rest for a busy scheduler.
const BESIDE_THE_LOAD_SECONDS: u32 = 270;

/// The runs that this change starts: one for each benchmark and hash, and not again while it exists.
pub(crate) fn due(
    server: &TunedWebServer,
    serving_hash: &str,
    existing: &[BenchmarkRun],
) -> Vec<BenchmarkRun> {
    let on_change = server
        .spec
        .benchmarks
        .iter()
        .filter(|b| b.trigger == Trigger::OnChange);
    on_change
        .map(|benchmark| run(server, benchmark, serving_hash))
        .filter(|run| {
            !existing
                .iter()
                .any(|other| other.name_any() == run.name_any())
        })
        .collect()
}

fn run(server: &TunedWebServer, benchmark: &Benchmark, serving_hash: &str) -> BenchmarkRun {
    let spec = BenchmarkRunSpec {
        target: Target {
            tuned_web_server: server.name_any(),
        },
        benchmark: benchmark.name.clone(),
        load: benchmark.load.clone(),
        objectives: benchmark.objectives.clone(),
        deadline_seconds: benchmark
            .load
            .duration_seconds
            .saturating_add(BESIDE_THE_LOAD_SECONDS),
    };
    BenchmarkRun {
        metadata: ObjectMeta {
            name: Some(run_name(&server.name_any(), &benchmark.name, serving_hash)),
            namespace: server.namespace(),
            labels: Some([(SERVER_LABEL.to_owned(), server.name_any())].into()),
            owner_references: server.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

fn run_name(server: &str, benchmark: &str, serving_hash: &str) -> String {
    let digits = serving_hash.get(..HASH_DIGITS).unwrap_or(serving_hash);
    let whole = format!("{server}-{benchmark}-{digits}");
    if whole.len() <= RUN_NAME_MAX {
        return whole;
    }
    // the two longest names together are two characters too long
    let tail = hash::of_parts([server.as_bytes(), serving_hash.as_bytes()]);
    let room = RUN_NAME_MAX - benchmark.len() - HASH_DIGITS - 2;
    let head = server.get(..room).unwrap_or(server).trim_end_matches('-');
    format!("{head}-{benchmark}-{}", &tail[..HASH_DIGITS])
}

/// The last recorded result of each benchmark of the spec.
pub(crate) fn results(server: &TunedWebServer, runs: &[BenchmarkRun]) -> Vec<BenchmarkResult> {
    let of = |benchmark: &Benchmark| {
        let finished = runs.iter().filter_map(|run| result(run, &benchmark.name));
        finished.max_by(|a, b| (a.finished_at.0, &a.run).cmp(&(b.finished_at.0, &b.run)))
    };
    server.spec.benchmarks.iter().filter_map(of).collect()
}

fn result(run: &BenchmarkRun, benchmark: &str) -> Option<BenchmarkResult> {
    let status = run.status()?;
    if run.spec.benchmark != benchmark || status.phase != Phase::Succeeded {
        return None;
    }
    let summary = status.result.as_ref()?;
    Some(BenchmarkResult {
        name: benchmark.to_owned(),
        run: run.name_any(),
        requests_per_second: summary.requests_per_second,
        bytes_per_second: summary.bytes_per_second,
        p50_microseconds: summary.p50_microseconds,
        p99_microseconds: summary.p99_microseconds,
        p999_microseconds: summary.p999_microseconds,
        errors: summary.errors.total(),
        validity: status.validity.clone()?,
        verdict: status.verdict.clone()?,
        finished_at: status.finished_at.clone()?,
    })
}

/// Whether what was measured reached its objectives.
pub(crate) fn condition(server: &TunedWebServer, results: &[BenchmarkResult]) -> Draft {
    let kind = ConditionType::BenchmarkPassed;
    let draft = |status, reason, message: String| Draft::new(kind, status, reason, message);
    if server.spec.benchmarks.is_empty() {
        let message = "spec.benchmarks is empty".to_owned();
        return draft(Status::Unknown, Reason::NotRequested, message);
    }
    let invalid = named(results, |result| {
        result.validity.state == ValidityState::Invalid
    });
    let missed = named(results, |result| {
        result.verdict.state == VerdictState::Failed
    });
    let passed = named(results, |result| {
        result.verdict.state == VerdictState::Passed
    });
    if !missed.is_empty() {
        return draft(
            Status::False,
            Reason::ObjectivesMissed,
            missed_message(results),
        );
    }
    if !invalid.is_empty() {
        let message = format!(
            "{} measured something else than the server",
            invalid.join(", ")
        );
        return draft(Status::False, Reason::ResultInvalid, message);
    }
    if results.len() < server.spec.benchmarks.len() {
        let message = format!(
            "{} of {} benchmarks have a result",
            results.len(),
            server.spec.benchmarks.len()
        );
        return draft(Status::Unknown, Reason::Pending, message);
    }
    if passed.is_empty() {
        let message = "no benchmark has objectives".to_owned();
        return draft(Status::Unknown, Reason::NotRequested, message);
    }
    draft(Status::True, Reason::ObjectivesReached, passed.join(", "))
}

fn named(results: &[BenchmarkResult], is: impl Fn(&BenchmarkResult) -> bool) -> Vec<&str> {
    results
        .iter()
        .filter(|result| is(result))
        .map(|result| result.name.as_str())
        .collect()
}

fn missed_message(results: &[BenchmarkResult]) -> String {
    let missed = results.iter().flat_map(|result| {
        result.verdict.failed.iter().map(move |objective| {
            format!(
                "{} ({}): {} is {}, asked for {}",
                result.name, result.run, objective.name, objective.value, objective.limit
            )
        })
    });
    missed.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::server;

    const HASH: &str = "0123456789abcdef";

    fn benchmarked() -> TunedWebServer {
        server(&json!({"benchmarks": [
            {"name": "first", "trigger": "OnChange", "load": {"durationSeconds": 10}},
            {"name": "second"},
        ]}))
    }

    fn finished(name: &str, benchmark: &str, at: &str, verdict: &Value) -> BenchmarkRun {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "web"},
            "spec": {"target": {"tunedWebServer": "site"}, "benchmark": benchmark},
            "status": {
                "phase": "Succeeded",
                "result": tunedweb_measure::LoadSummary::default(),
                "validity": {"state": "Valid"},
                "verdict": verdict,
                "finishedAt": at,
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_change_starts_each_benchmark_once() {
        let server = benchmarked();
        let due_now = due(&server, HASH, &[]);
        let names: Vec<String> = due_now.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["site-first-01234567"]);
        assert_eq!(due_now[0].spec.deadline_seconds, 280);
        assert_eq!(due(&server, HASH, &due_now), []);
        assert_eq!(due(&server, "fedcba9876543210", &due_now).len(), 1);
    }

    #[test]
    fn the_longest_names_make_a_run_name_that_fits() {
        let benchmark = "b".repeat(15);
        let name = run_name(&"s".repeat(40), &benchmark, HASH);
        assert!(name.len() <= RUN_NAME_MAX, "{name}");
        let other = format!("{}t", "s".repeat(39));
        assert_ne!(name, run_name(&other, &benchmark, HASH));
    }

    #[test]
    fn the_last_result_of_each_benchmark_counts_in_the_order_of_the_spec() {
        let verdict = json!({"state": "NoObjectives"});
        let runs = [
            finished("r1", "second", "2026-01-01T00:00:00Z", &verdict),
            finished("r2", "first", "2026-01-01T00:00:00Z", &verdict),
            finished("r3", "first", "2026-01-02T00:00:00Z", &verdict),
            finished("r4", "other", "2026-01-03T00:00:00Z", &verdict),
        ];
        let found = results(&benchmarked(), &runs);
        let names: Vec<&str> = found.iter().map(|result| result.run.as_str()).collect();
        assert_eq!(names, ["r3", "r1"]);
    }

    #[test]
    fn one_missed_objective_is_named_with_value_and_limit() {
        let missed = json!({"state": "Failed", "failed": [
            {"name": "maxP99Microseconds", "value": 9000, "limit": 5000},
        ]});
        let runs = [finished("r1", "first", "2026-01-01T00:00:00Z", &missed)];
        let server = benchmarked();
        let found = condition(&server, &results(&server, &runs));
        assert_eq!(
            (found.status, found.reason),
            (Status::False, Reason::ObjectivesMissed)
        );
        assert_eq!(
            found.message,
            "first (r1): maxP99Microseconds is 9000, asked for 5000"
        );
    }

    #[test]
    fn passed_needs_every_benchmark_and_at_least_one_objective() {
        let server = benchmarked();
        let passed = json!({"state": "Passed"});
        let one = finished("r1", "first", "2026-01-01T00:00:00Z", &passed);
        let found = condition(&server, &results(&server, std::slice::from_ref(&one)));
        assert_eq!(
            (found.status, found.reason),
            (Status::Unknown, Reason::Pending)
        );
        let two = finished(
            "r2",
            "second",
            "2026-01-01T00:00:00Z",
            &json!({"state": "NoObjectives"}),
        );
        let found = condition(&server, &results(&server, &[one, two]));
        assert_eq!(
            (found.status, found.reason),
            (Status::True, Reason::ObjectivesReached)
        );
    }
}
