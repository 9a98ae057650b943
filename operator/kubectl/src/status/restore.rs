//! What deleting the resource will do to each node's keys: pure.

use serde::Serialize;
use tunedweb_api::{NodeTuning, TunedWebServer};
use tunedweb_tuning::KeyReport;
use tunedweb_tuning::catalogue::{self, ReleaseRule};

use super::summary::{keys, name_of, resource};

/// What deleting will do to one key of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreLine {
    /// Name of the node.
    pub node: String,
    /// Name of the key.
    pub key: String,
    /// Value now.
    pub now: String,
    /// Value afterwards, as far as can be told.
    pub afterwards: String,
    /// Why it is not the one from before; empty where it is.
    pub note: String,
}

pub(super) fn on_delete(server: &TunedWebServer, tunings: &[NodeTuning]) -> Vec<RestoreLine> {
    let resource = resource(server);
    let mut lines: Vec<RestoreLine> = tunings
        .iter()
        .flat_map(|tuning| {
            let node = name_of(tuning);
            keys(tuning, server).map(move |key| (node.clone(), key))
        })
        .filter(|(_, key)| !key.baseline.is_empty())
        .map(|(node, key)| restore_line(node, key, &resource))
        .collect();
    lines.sort_by(|a, b| (&a.node, &a.key).cmp(&(&b.node, &b.key)));
    lines
}

fn restore_line(node: String, key: &KeyReport, resource: &str) -> RestoreLine {
    let others: Vec<&str> = key
        .owners
        .iter()
        .map(String::as_str)
        .filter(|owner| *owner != resource)
        .collect();
    let keeps_raised =
        catalogue::find(&key.name).is_some_and(|known| known.release == ReleaseRule::KeepRaised);
    let (afterwards, why) = if !others.is_empty() {
        (String::new(), format!("as {} wants it", others.join(", ")))
    } else if keeps_raised {
        let why = "lowering it would harm processes that started since";
        (key.found.clone(), why.to_owned())
    } else {
        (key.baseline.clone(), String::new())
    };
    RestoreLine {
        node,
        key: key.name.clone(),
        now: key.found.clone(),
        afterwards,
        note: why,
    }
}
