//! What to do next with a run. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tunedweb_api::BenchmarkRun;
use tunedweb_api::benchmark_run::Phase;
use tunedweb_api::condition::Reason;

use crate::pods;
use crate::tuned_web_server::load_problem;

/// What is known of a run. `run` is as the API server has it now, not as it was last seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) run: &'a BenchmarkRun,
    pub(crate) job: Option<&'a Job>,
    pub(crate) pods: &'a [&'a Pod],
    /// Why the target cannot be measured; none: it can.
    pub(crate) target_missing: Option<&'a str>,
    /// The run of the same target that goes first.
    pub(crate) ahead: Option<&'a str>,
    pub(crate) now: Timestamp,
}

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is over, and so is its Job.
    Nothing,
    /// Its result is recorded: the Job goes.
    CleanUp,
    /// It cannot start yet.
    Wait { reason: Reason, message: String },
    /// Everything is there.
    Start,
    /// The load pods are on their way, or at work.
    Watch { phase: Phase, message: String },
    /// The load pods have ended: what they left behind is read.
    Record,
    /// There will be no result.
    Fail { reason: Reason, message: String },
}

pub(crate) fn decide(facts: Facts<'_>) -> Step {
    let Facts { run, job, .. } = facts;
    let phase = run
        .status
        .as_ref()
        .map(|status| status.phase)
        .unwrap_or_default();
    match (phase, job) {
        (Phase::Succeeded | Phase::Failed, None) => Step::Nothing,
        (Phase::Succeeded | Phase::Failed, Some(_)) => Step::CleanUp,
        (_, Some(job)) => with_job(facts, job),
        (Phase::Running, None) => fail(
            Reason::Aborted,
            "the Job was deleted before its result was recorded; create another BenchmarkRun",
        ),
        (Phase::Pending, None) => without_job(facts),
    }
}

fn without_job(facts: Facts<'_>) -> Step {
    let Facts {
        run,
        target_missing,
        ahead,
        now,
        ..
    } = facts;
    if let Some(problem) = load_problem("spec.load", &run.spec.load) {
        return fail(Reason::InvalidSpec, problem);
    }
    if let Some(name) = ahead {
        let message = format!("waiting for BenchmarkRun {name}: one run a target at a time");
        return Step::Wait {
            reason: Reason::Pending,
            message,
        };
    }
    let Some(missing) = target_missing else {
        return Step::Start;
    };
    if is_past(
        run.creation_timestamp().map(|time| time.0),
        run.spec.deadline_seconds,
        now,
    ) {
        let message = format!("within {} s {missing}", run.spec.deadline_seconds);
        return fail(Reason::TargetNotFound, message);
    }
    Step::Wait {
        reason: Reason::TargetNotFound,
        message: missing.to_owned(),
    }
}

fn with_job(facts: Facts<'_>, job: &Job) -> Step {
    if ended_as(job, "Complete").is_some() {
        return Step::Record;
    }
    if let Some(failed) = ended_as(job, "Failed") {
        return match failed.reason.as_deref() {
            Some("DeadlineExceeded") => deadline_exceeded(facts),
            // a load that got no answer leaves a result all the same
            _ if facts
                .pods
                .iter()
                .any(|pod| pods::ended(pod, LOAD).is_some()) =>
            {
                Step::Record
            }
            _ => fail(
                Reason::LoadFailed,
                job_failed(facts, failed.message.as_deref()),
            ),
        };
    }
    let trouble = facts.pods.iter().find_map(|pod| pods::trouble(pod));
    let runs = facts.pods.iter().any(|pod| is_running(pod));
    Step::Watch {
        phase: if runs { Phase::Running } else { Phase::Pending },
        message: trouble.unwrap_or_default(),
    }
}

/// Whether a Job has come to its end, good or bad.
pub(crate) fn has_ended(job: &Job) -> bool {
    ["Complete", "Failed"]
        .iter()
        .any(|kind| ended_as(job, kind).is_some())
}

fn ended_as<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind && condition.status == "True")
}

const LOAD: &str = tunedweb_api::names::LOAD_CONTAINER;

fn is_running(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Running" | "Succeeded" | "Failed"))
}

fn deadline_exceeded(facts: Facts<'_>) -> Step {
    let run = facts.run;
    let last = run
        .status
        .as_ref()
        .map_or("", |status| status.message.as_str());
    let last = if last.is_empty() {
        String::new()
    } else {
        format!("; last seen: {last}")
    };
    let message = format!(
        "the load pod did not end within spec.deadlineSeconds, {} s{last}",
        run.spec.deadline_seconds
    );
    fail(Reason::DeadlineExceeded, message)
}

/// Why load pods failed that left nothing behind.
fn job_failed(facts: Facts<'_>, message: Option<&str>) -> String {
    let of_pod = facts.pods.iter().find_map(|pod| pods::trouble(pod));
    of_pod
        .or_else(|| message.map(str::to_owned))
        .unwrap_or_else(|| "the Job failed".to_owned())
}

/// Why a pod that ended left no result: out of memory, evicted, or what it said itself.
pub(crate) fn pod_failed(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    if status.and_then(|status| status.reason.as_deref()) == Some("Evicted") {
        return pods::trouble(pod).unwrap_or_else(|| "Evicted".to_owned());
    }
    match pods::ended(pod, LOAD) {
        Some(ended) if ended.reason == "OOMKilled" => {
            "OOMKilled: the load pod used more memory than it may; fewer connections need less"
                .to_owned()
        }
        Some(ended) => {
            let text = ended.message.trim();
            format!(
                "load pod: exit code {} ({}): {text}",
                ended.exit_code, ended.reason
            )
        }
        None => pods::trouble(pod).unwrap_or_else(|| "the load pod left nothing behind".to_owned()),
    }
}

/// Whether so many seconds have passed.
pub(crate) fn is_past(since: Option<Timestamp>, seconds: u32, now: Timestamp) -> bool {
    let limit = SignedDuration::from_secs(i64::from(seconds));
    since.is_some_and(|since| now.duration_since(since) >= limit)
}

fn fail(reason: Reason, message: impl Into<String>) -> Step {
    Step::Fail {
        reason,
        message: message.into(),
    }
}

/// The run of a target that goes first: one that has started, else the oldest.
pub(crate) fn first_in_line<'a>(
    runs: impl IntoIterator<Item = &'a BenchmarkRun>,
) -> Option<&'a BenchmarkRun> {
    let phase = |run: &BenchmarkRun| run.status.as_ref().map(|s| s.phase).unwrap_or_default();
    let has_started = |run: &BenchmarkRun| {
        run.status
            .as_ref()
            .is_some_and(|status| status.provenance.is_some())
    };
    runs.into_iter()
        .filter(|run| !matches!(phase(run), Phase::Succeeded | Phase::Failed))
        .filter(|run| run.metadata.deletion_timestamp.is_none())
        .min_by_key(|run| {
            let created = run.creation_timestamp().map(|time| time.0);
            (!has_started(run), created, run.name_any())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(status: &Value) -> BenchmarkRun {
        serde_json::from_value(json!({
            "metadata": {
                "name": "r", "namespace": "web", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"target": {"tunedWebServer": "site"}, "deadlineSeconds": 60},
            "status": status,
        }))
        .unwrap()
    }

    fn job(conditions: &Value) -> Job {
        serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn facts<'a>(run: &'a BenchmarkRun, job: Option<&'a Job>, pods: &'a [&'a Pod]) -> Facts<'a> {
        let now = "2026-01-01T00:00:30Z".parse().unwrap();
        Facts {
            run,
            job,
            pods,
            target_missing: None,
            ahead: None,
            now,
        }
    }

    fn failed(step: Step) -> (Reason, String) {
        match step {
            Step::Fail { reason, message } => (reason, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_run_waits_for_its_turn_and_its_target_and_not_for_ever() {
        let run = run(&json!({}));
        let mut facts = facts(&run, None, &[]);
        assert_eq!(decide(facts), Step::Start);
        facts.ahead = Some("other");
        assert!(matches!(
            decide(facts),
            Step::Wait {
                reason: Reason::Pending,
                ..
            }
        ));
        facts.ahead = None;
        facts.target_missing = Some("TunedWebServer site does not exist");
        assert!(matches!(
            decide(facts),
            Step::Wait {
                reason: Reason::TargetNotFound,
                ..
            }
        ));
        facts.now = "2026-01-01T00:01:00Z".parse().unwrap();
        let (reason, message) = failed(decide(facts));
        assert_eq!(reason, Reason::TargetNotFound);
        assert_eq!(message, "within 60 s TunedWebServer site does not exist");
    }

    #[test]
    fn a_finished_run_is_never_run_again() {
        for phase in ["Succeeded", "Failed"] {
            let run = run(&json!({"phase": phase}));
            assert_eq!(decide(facts(&run, None, &[])), Step::Nothing);
            let left = job(&json!([]));
            assert_eq!(decide(facts(&run, Some(&left), &[])), Step::CleanUp);
        }
    }

    #[test]
    fn a_job_that_vanished_ends_the_run_and_one_that_was_never_made_does_not() {
        let running = run(&json!({"phase": "Running", "provenance": {}}));
        assert_eq!(
            failed(decide(facts(&running, None, &[]))).0,
            Reason::Aborted
        );
        let prepared = run(&json!({"phase": "Pending", "provenance": {}}));
        assert_eq!(decide(facts(&prepared, None, &[])), Step::Start);
    }

    #[test]
    fn a_run_at_work_says_what_holds_it_up() {
        let run = run(&json!({}));
        let job = job(&json!([]));
        let waiting = pod(&json!({"phase": "Pending", "containerStatuses": [{
            "name": "load", "image": "x:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull"}},
        }]}));
        let Step::Watch { phase, message } = decide(facts(&run, Some(&job), &[&waiting])) else {
            panic!("not watched");
        };
        assert_eq!(phase, Phase::Pending);
        assert_eq!(message, "ImagePullBackOff: container load uses image x:1");
        let working = pod(&json!({"phase": "Running"}));
        let step = decide(facts(&run, Some(&job), &[&working]));
        assert_eq!(
            step,
            Step::Watch {
                phase: Phase::Running,
                message: String::new()
            }
        );
    }

    #[test]
    fn the_deadline_names_what_was_last_in_the_way() {
        let run = run(&json!({"message": "Unschedulable: 0/3 nodes"}));
        let job = job(&json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]));
        let (reason, message) = failed(decide(facts(&run, Some(&job), &[])));
        assert_eq!(reason, Reason::DeadlineExceeded);
        assert!(
            message.ends_with("last seen: Unschedulable: 0/3 nodes"),
            "{message}"
        );
    }

    #[test]
    fn what_ended_is_read_even_when_the_job_failed() {
        let run = run(&json!({"phase": "Running"}));
        let complete = job(&json!([{"type": "Complete", "status": "True"}]));
        assert_eq!(decide(facts(&run, Some(&complete), &[])), Step::Record);
        let failed_job = job(&json!([
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"},
        ]));
        let ended = pod(&json!({"phase": "Failed", "containerStatuses": [{
            "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "x"}},
        }]}));
        assert_eq!(
            decide(facts(&run, Some(&failed_job), &[&ended])),
            Step::Record
        );
        assert_eq!(failed(decide(facts(&run, Some(&failed_job), &[]))).1, "m");
    }

    #[test]
    fn each_way_to_fail_is_told_apart() {
        let of = |exit: i32, reason: &str, message: &str| {
            pod_failed(&pod(&json!({"containerStatuses": [{
                "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": exit, "reason": reason, "message": message}},
            }]})))
        };
        assert!(of(137, "OOMKilled", "").starts_with("OOMKilled"));
        assert_eq!(
            of(1, "Error", "no route\n"),
            "load pod: exit code 1 (Error): no route"
        );
        let evicted = pod(&json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}));
        assert_eq!(pod_failed(&evicted), "Evicted: disk");
    }

    #[test]
    fn one_run_a_target_at_a_time_and_the_one_at_work_first() {
        let named = |name: &str, created: &str, status: &Value| {
            let mut run = run(status);
            run.metadata.name = Some(name.to_owned());
            run.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
            run
        };
        let old = named(
            "old",
            "2026-01-01T00:00:00Z",
            &json!({"phase": "Succeeded"}),
        );
        let first = named("first", "2026-01-01T00:01:00Z", &json!({}));
        let second = named("second", "2026-01-01T00:02:00Z", &json!({}));
        let at_work = named(
            "at-work",
            "2026-01-01T00:03:00Z",
            &json!({"provenance": {}}),
        );
        let first_of =
            |runs: &[&BenchmarkRun]| first_in_line(runs.iter().copied()).map(ResourceExt::name_any);
        assert_eq!(first_of(&[&second, &first, &old]).as_deref(), Some("first"));
        assert_eq!(
            first_of(&[&second, &first, &at_work]).as_deref(),
            Some("at-work")
        );
        assert_eq!(first_of(&[&old]), None);
    }
}
