//! What a node reports of itself, and whether a limit can be reached on it.

use tunedweb_tuning::NodeFacts;
use tunedweb_tuning::catalogue::find;

use crate::tree::{Host, KernelTree};

/// What this node says of itself.
pub(crate) fn node_facts(tree: &impl KernelTree) -> std::io::Result<NodeFacts> {
    let host = tree.host()?;
    let hard_nofile = hard_nofile(tree, &host);
    Ok(NodeFacts {
        kernel: host.kernel,
        page_size_bytes: host.page_size_bytes,
        memory_bytes: host.memory_bytes,
        hard_nofile,
    })
}

/// Hard limit of open files of this process. A process without limit has that of `fs.nr_open`, the
/// most that the kernel grants.
pub(crate) fn hard_nofile(tree: &impl KernelTree, host: &Host) -> u64 {
    host.hard_nofile
        .or_else(|| nr_open(tree))
        .unwrap_or(NR_OPEN_DEFAULT)
}

/// `fs.nr_open` as it is now.
pub(crate) fn nr_open(tree: &impl KernelTree) -> Option<u64> {
    let key = find("fs.nr_open")?;
    tree.read(key).ok()?.trim().parse().ok()
}

/// The kernel's compiled value of `fs.nr_open`.
const NR_OPEN_DEFAULT: u64 = 1_048_576;

/// What is said where more open files are asked for than a process of this node may have.
pub(crate) fn limit_not_permitted(asked: Option<u64>, hard_nofile: u64) -> Option<String> {
    let asked = asked.filter(|asked| *asked > hard_nofile)?;
    Some(format!(
        "nofile {asked} is asked for, containers of this node may have at most {hard_nofile}; to \
         permit it, raise LimitNOFILE of the container runtime's unit (containerd.service or \
         crio.service) or its default rlimits (containerd: base_runtime_spec, CRI-O: \
         default_ulimits) and restart the runtime"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_within_reach_needs_no_words() {
        assert_eq!(limit_not_permitted(None, 1_024), None);
        assert_eq!(limit_not_permitted(Some(1_024), 1_024), None);
    }

    #[test]
    fn a_limit_out_of_reach_says_what_is_asked_permitted_and_to_be_done() {
        let text = limit_not_permitted(Some(65_536), 20_000).expect("out of reach");
        for part in ["65536", "20000", "LimitNOFILE"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
