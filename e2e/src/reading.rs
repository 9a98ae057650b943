//! Kernel keys and process limits as they are found on nodes, and tables of them.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use tunedweb_api::TunedWebServerSpec;
use tunedweb_tuning::catalogue::{self, Key, Scope};

use crate::cluster::ServingPod;
use crate::probe::{Node, ProbeError};

/// Page size of the kernels that kind runs on here (`getconf PAGE_SIZE` on amd64 and on Debian's
/// arm64).
const PAGE_BYTES: u64 = 4096;

/// Something that a resource asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Name of the key, or of the limit in words.
    pub what: String,
    /// Where it is looked up.
    pub place: Place,
    /// The value as the kernel would print it.
    pub wanted: String,
}

/// Where a value is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Place {
    /// The node, and with it every pod.
    Node,
    /// The serving pod's network namespace.
    Pod,
    /// The server's process.
    Process,
}

/// A value as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reading {
    /// The node.
    pub node: String,
    /// Name of the key, or of the limit in words.
    pub what: String,
    /// Where it was looked up.
    pub place: Place,
    /// The value.
    pub value: String,
}

/// What a resource asks for, in the order of its spec.
pub fn wishes(spec: &TunedWebServerSpec) -> Vec<Wish> {
    let sysctls = spec.tuning.sysctls.iter().map(|setting| {
        let key = catalogue::find(&setting.name);
        Wish {
            what: setting.name.clone(),
            place: key.map_or(Place::Node, place_of),
            wanted: key.map_or_else(|| setting.value.clone(), |key| printed(key, &setting.value)),
        }
    });
    let ulimits = spec.tuning.ulimits.iter().map(|limit| Wish {
        what: OPEN_FILES.to_owned(),
        place: Place::Process,
        wanted: limit.soft.to_string(),
    });
    sysctls.chain(ulimits).collect()
}

/// The only process limit that can be asked for.
const OPEN_FILES: &str = "open files (soft limit)";

impl Wish {
    /// Whether a value found fulfils the wish: it is the value, or one that the key's merge rule
    /// keeps, as it does with a maximum that was higher already.
    pub fn is_met_by(&self, found: &str) -> bool {
        let merged = catalogue::find(&self.what).and_then(|key| {
            let wanted = key.from_kernel(&self.wanted, PAGE_BYTES)?;
            let found = key.from_kernel(found, PAGE_BYTES)?;
            Some(key.combine(&found, &wanted) == found)
        });
        merged.unwrap_or(self.wanted == found)
    }

    /// The value that a pod started now on this node would find.
    pub async fn read_untuned(&self, node: &Node) -> Result<Reading, ProbeError> {
        let value = match self.place {
            Place::Node => node.sysctl(&self.what).await?,
            Place::Pod => node.sysctl_of_new_network(&self.what).await?,
            Place::Process => node.default_open_files().await?.soft.to_string(),
        };
        Ok(self.reading(node, value))
    }

    /// The value that a serving pod runs under.
    pub async fn read_tuned(&self, pod: &ServingPod) -> Result<Reading, ProbeError> {
        let value = match self.place {
            Place::Node => pod.node.sysctl(&self.what).await?,
            Place::Pod => pod.process().await?.sysctl(&self.what).await?,
            Place::Process => pod.process().await?.open_files().await?.soft.to_string(),
        };
        Ok(self.reading(&pod.node, value))
    }

    fn reading(&self, node: &Node, value: String) -> Reading {
        Reading {
            node: node.name.clone(),
            what: self.what.clone(),
            place: self.place,
            value,
        }
    }
}

/// Reads every wish on every node, as [`Wish::read_untuned`] does.
pub async fn read_untuned(wishes: &[Wish], nodes: &[Node]) -> Result<Vec<Reading>, ProbeError> {
    let mut readings = Vec::new();
    for node in nodes {
        for wish in wishes {
            readings.push(wish.read_untuned(node).await?);
        }
    }
    Ok(readings)
}

/// Reads every wish on the node of every pod, as [`Wish::read_tuned`] does.
pub async fn read_tuned(wishes: &[Wish], pods: &[ServingPod]) -> Result<Vec<Reading>, ProbeError> {
    let mut readings = Vec::new();
    for pod in pods {
        for wish in wishes {
            readings.push(wish.read_tuned(pod).await?);
        }
    }
    Ok(readings)
}

/// A table of `old → new` for each reading of `new`; what `old` does not have shows as `?`.
pub fn table(old: &[Reading], new: &[Reading]) -> String {
    let width = |column: fn(&Reading) -> &str| new.iter().map(|r| column(r).len()).max();
    let (node, what) = (
        width(|r| &r.node).unwrap_or(0),
        width(|r| &r.what).unwrap_or(0),
    );
    let mut text = String::new();
    for reading in new {
        let before = value_in(old, reading).unwrap_or("?");
        let Reading {
            node: on,
            what: name,
            place,
            value,
        } = reading;
        let _ = writeln!(
            text,
            "{on:<node$}  {name:<what$}  {place:<11}  {before} → {value}"
        );
    }
    text
}

/// The value of the same thing on the same node among other readings.
pub fn value_in<'a>(readings: &'a [Reading], same: &Reading) -> Option<&'a str> {
    let found = readings
        .iter()
        .find(|r| r.node == same.node && r.what == same.what)?;
    Some(&found.value)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Node => "node",
            Self::Pod => "serving pod",
            Self::Process => "server",
        })
    }
}

fn place_of(key: &Key) -> Place {
    match key.scope {
        Scope::PodNetwork | Scope::PodNetworkInherited => Place::Pod,
        Scope::Node | Scope::HostNetwork => Place::Node,
    }
}

/// The user's value in the kernel's unit and form.
fn printed(key: &Key, value: &str) -> String {
    // Read as a kernel with pages of one byte would print it, the value is the user's.
    key.from_kernel(value, 1).map_or_else(
        || value.to_owned(),
        |value| key.to_kernel(&value, PAGE_BYTES),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wishes_of(tuning: &serde_json::Value) -> Vec<Wish> {
        let spec = json!({"content": {"configMap": {"name": "html"}}, "tuning": tuning});
        wishes(&serde_json::from_value(spec).unwrap())
    }

    fn reading(node: &str, what: &str, value: &str) -> Reading {
        Reading {
            node: node.into(),
            what: what.into(),
            place: Place::Node,
            value: value.into(),
        }
    }

    #[test]
    fn each_wish_is_looked_up_where_it_takes_effect() {
        let wishes = wishes_of(&json!({
            "sysctls": [
                {"name": "net.core.somaxconn", "value": "65535"},
                {"name": "vm.max_map_count", "value": "262144"},
            ],
            "ulimits": [{"name": "nofile", "soft": 16384}],
        }));
        let places: Vec<_> = wishes.iter().map(|wish| wish.place).collect();
        assert_eq!(places, [Place::Pod, Place::Node, Place::Process]);
        assert_eq!(wishes[2].wanted, "16384");
    }

    #[test]
    fn bytes_are_compared_in_the_pages_that_the_kernel_prints() {
        let wishes = wishes_of(&json!({
            "sysctls": [{"name": "net.ipv4.tcp_mem", "value": "4194304 8388608 16777216"}],
        }));
        assert_eq!(wishes[0].wanted, "1024 2048 4096");
    }

    #[test]
    fn a_higher_value_meets_a_wish_only_where_the_maximum_counts() {
        let wishes = wishes_of(&json!({
            "sysctls": [{"name": "vm.max_map_count", "value": "262144"}],
            "ulimits": [{"name": "nofile", "soft": 16384}],
        }));
        assert!(wishes[0].is_met_by("262144") && wishes[0].is_met_by("1048576"));
        assert!(!wishes[0].is_met_by("65530"));
        assert!(wishes[1].is_met_by("16384") && !wishes[1].is_met_by("20000"));
    }

    #[test]
    fn a_table_shows_old_and_new_in_columns() {
        let old = [reading("worker", "vm.max_map_count", "65530")];
        let new = [
            reading("worker", "vm.max_map_count", "262144"),
            reading("worker2", "fs.nr_open", "1048576"),
        ];
        assert_eq!(
            table(&old, &new),
            "worker   vm.max_map_count  node         65530 → 262144\n\
             worker2  fs.nr_open        node         ? → 1048576\n"
        );
    }
}
