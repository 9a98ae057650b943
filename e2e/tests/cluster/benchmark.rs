//! What is measured stands in the status, and is right.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use serde_json::json;
use tunedweb_api::benchmark_run::Phase;
use tunedweb_api::{BenchmarkRun, names};
use tunedweb_e2e::wait;
use tunedweb_measure::{ValidityReason, ValidityState, VerdictState};

use crate::site::Site;

/// Pods of a run are scheduled, started, resolved and removed around its load.
const RUN: Duration = Duration::from_mins(2);
/// Image with `wrk` that is in every node made by `e2e/test`.
const TOOLS_IMAGE_VARIABLE: &str = "TUNEDWEB_TOOLS_IMAGE";
const CONNECTIONS: u32 = 64;
const SECONDS: u32 = 5;

#[tokio::test]
async fn an_on_change_benchmark_runs_once_a_hash_and_its_result_stands_in_the_status()
-> anyhow::Result<()> {
    let benchmark = json!({
        "name": "keepalive",
        "trigger": "OnChange",
        "load": {"connections": 20, "durationSeconds": 3},
        "objectives": {"maxErrors": 0, "minRequestsPerSecond": 1_000_000_000},
    });
    let site = Site::ready("onchange", json!({"benchmarks": [benchmark]})).await?;
    let look = async || {
        let server = site.resource().await.map_err(|error| error.to_string())?;
        let status = server.status.unwrap_or_default();
        status
            .benchmarks
            .first()
            .cloned()
            .ok_or_else(|| format!("{:?}", status.conditions))
    };
    let result = wait::eventually(RUN, "a result in the status", look).await?;
    assert!(
        result.requests_per_second > 0 && result.p99_microseconds > 0,
        "{result:?}"
    );
    assert_eq!(result.errors, 0);
    assert_eq!(
        result.validity.state,
        ValidityState::Qualified,
        "every worker serves"
    );
    assert_eq!(result.validity.reasons, [ValidityReason::SharedNode]);
    assert_eq!(result.verdict.state, VerdictState::Failed);
    assert_eq!(result.verdict.failed[0].limit, 1_000_000_000);

    let line = tunedweb_e2e::command::run(
        "kubectl",
        &[
            "get",
            "tws",
            "site",
            "-n",
            site.namespace.name(),
            "--no-headers",
        ],
    )
    .await?;
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!(columns[1..3], ["True", "2/2"], "{line}");
    assert_eq!(columns[3], result.requests_per_second.to_string(), "{line}");

    // A change of what is not measured makes no new run.
    let runs: Api<BenchmarkRun> = site.cluster.api(site.namespace.name());
    let mut changed = json!({"network": {"service": {"port": 8000}}});
    changed["benchmarks"] = json!([{
        "name": "keepalive", "trigger": "OnChange", "load": {"connections": 20, "durationSeconds": 3},
        "objectives": {"maxErrors": 0},
    }]);
    site.apply(changed).await?;
    site.wait_ready().await?;
    assert_eq!(runs.list(&ListParams::default()).await?.items.len(), 1);
    site.remove().await
}

#[tokio::test]
async fn the_servers_own_request_counter_agrees_with_the_run() -> anyhow::Result<()> {
    let site = Site::ready("counter", json!({})).await?;
    for (name, reuse) in [("keep", "KeepAlive"), ("short", "None")] {
        let before = requests_served(&site).await?;
        let run = finish(&site, name, reuse).await?;
        let served = requests_served(&site).await? - before;
        let counted = run
            .status
            .and_then(|status| status.result)
            .context("no result")?
            .requests;
        let difference = served
            .checked_sub(counted)
            .context("the server counted fewer")?;
        assert!(
            difference <= u64::from(CONNECTIONS),
            "{name}: served {served}, counted {counted}"
        );
    }
    site.remove().await
}

#[tokio::test]
async fn the_load_generators_rate_is_at_least_three_quarters_of_wrks() -> anyhow::Result<()> {
    let image = std::env::var(TOOLS_IMAGE_VARIABLE).unwrap_or_default();
    if image.is_empty() {
        tunedweb_e2e::skip(
            "the_load_generators_rate_is_at_least_three_quarters_of_wrks",
            "the node image was not made here and has no wrk",
        );
        return Ok(());
    }
    let site = Site::ready("rate", json!({})).await?;
    let (mut ours, mut wrks) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let run = finish(&site, &format!("round-{round}"), "KeepAlive").await?;
        let status = run.status.context("no status")?;
        ours.push(status.result.context("no result")?.requests_per_second);
        let node = status
            .provenance
            .and_then(|p| p.load_nodes.into_iter().next());
        wrks.push(wrk(&site, &image, round, &node.context("no load node")?).await?);
    }
    let ratio = ratio_in_hundredths(median(&ours), median(&wrks));
    println!("requests/s: ours {ours:?}, wrk {wrks:?}; ratio of medians {ratio} %");
    assert!(ratio >= 75, "ours {ours:?}, wrk {wrks:?}");
    site.remove().await
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

fn ratio_in_hundredths(a: u64, b: u64) -> u64 {
    a * 100 / b.max(1)
}

/// Makes a run and waits for its result.
async fn finish(site: &Site, name: &str, reuse: &str) -> anyhow::Result<BenchmarkRun> {
    let runs: Api<BenchmarkRun> = site.cluster.api(site.namespace.name());
    let run = serde_json::from_value(json!({
        "apiVersion": "tunedweb.io/v1alpha1",
        "kind": "BenchmarkRun",
        "metadata": {"name": name},
        "spec": {
            "target": {"tunedWebServer": "site"},
            "load": {
                "connections": CONNECTIONS, "durationSeconds": SECONDS, "connectionReuse": reuse,
            },
        },
    }))?;
    runs.create(&PostParams::default(), &run).await?;
    let look = async || match runs.get(name).await {
        Ok(run)
            if run
                .status
                .as_ref()
                .is_some_and(|s| s.phase == Phase::Succeeded) =>
        {
            Ok(run)
        }
        other => Err(format!("{other:?}")),
    };
    Ok(wait::eventually(RUN, "the run's result", look).await?)
}

/// What all serving pods say that they answered, from their metrics.
async fn requests_served(site: &Site) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pod in site.pods().await? {
        let url = format!("http://{}:{}/metrics", pod.address, names::ADMIN_PORT);
        let page = pod.node.fetch(&url).await?;
        let lines = page
            .body
            .lines()
            .filter(|l| l.starts_with("tunedweb_server_requests_total"));
        let counts = lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
        sum += counts.sum::<Result<u64, _>>()?;
    }
    Ok(sum)
}

/// Requests a second that `wrk` reaches from a pod on a node, with the run's load.
async fn wrk(site: &Site, image: &str, round: u32, node: &str) -> anyhow::Result<u64> {
    let pods: Api<Pod> = site.cluster.api(site.namespace.name());
    let name = format!("wrk-{round}");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{
                "name": "wrk", "image": image, "imagePullPolicy": "Never",
                "command": [
                    "wrk", "-t1", format!("-c{CONNECTIONS}"), format!("-d{SECONDS}s"),
                    format!("http://site.{}.svc/", site.namespace.name()),
                ],
            }],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let look = async || match pods.get(&name).await {
        Ok(pod) => match pod.status.and_then(|status| status.phase).as_deref() {
            Some("Succeeded") => Ok(()),
            other => Err(format!("{other:?}")),
        },
        Err(error) => Err(error.to_string()),
    };
    wait::eventually(RUN, "the end of wrk", look).await?;
    let text = pods.logs(&name, &LogParams::default()).await?;
    pods.delete(&name, &DeleteParams::default()).await?;
    let figures: BTreeMap<_, _> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let rate = figures
        .get("Requests/sec")
        .with_context(|| text.clone())?
        .trim();
    let whole = rate.split('.').next().unwrap_or_default();
    whole.parse().with_context(|| text.clone())
}
