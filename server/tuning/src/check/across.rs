//! Values that are permitted each, and not together.

use super::{CheckedTuning, Problem};
use crate::catalogue::find;
use crate::value::{PortSet, Value};

/// Lowest port that any user may bind, where nothing else is set (`ip-sysctl`).
const UNPRIVILEGED_PORT_START_DEFAULT: u64 = 1_024;

/// Ports that the kernel chooses from, where nothing else is set (`ip-sysctl`).
const LOCAL_PORT_RANGE_DEFAULT: (u64, u64) = (32_768, 60_999);

/// What is wrong between the keys and limits.
pub(super) fn problems(prefix: &str, checked: &CheckedTuning) -> impl Iterator<Item = Problem> {
    [
        port_range_problem(prefix, checked),
        reserved_ports_problem(prefix, checked),
        nr_open_problem(prefix, checked),
    ]
    .into_iter()
    .flatten()
}

/// The kernel refuses a range that reaches below the ports that need a privilege (`EINVAL`).
fn port_range_problem(prefix: &str, checked: &CheckedTuning) -> Option<Problem> {
    let (low, _) = port_range(checked)?;
    let start = number_of(checked, "net.ipv4.ip_unprivileged_port_start")
        .unwrap_or(UNPRIVILEGED_PORT_START_DEFAULT);
    (low < start).then(|| Problem {
        field: format!("{prefix}sysctls[net.ipv4.ip_local_port_range].value"),
        value: low.to_string(),
        permitted: format!("a low end of at least {start}"),
        reason: format!("the range begins below net.ipv4.ip_unprivileged_port_start ({start})"),
        instead: find("net.ipv4.ip_local_port_range")
            .map_or("", |key| key.advice)
            .to_owned(),
    })
}

/// A set that holds the whole range leaves the kernel no port to choose: no connection goes out.
fn reserved_ports_problem(prefix: &str, checked: &CheckedTuning) -> Option<Problem> {
    const NAME: &str = "net.ipv4.ip_local_reserved_ports";
    let Value::Ports(reserved) = value_of(checked, NAME)? else {
        return None;
    };
    let (low, high) = port_range(checked).unwrap_or(LOCAL_PORT_RANGE_DEFAULT);
    let range = PortSet::parse(&format!("{low}-{high}"))?;
    range
        .difference(reserved)
        .first()
        .is_none()
        .then(|| Problem {
            field: format!("{prefix}sysctls[{NAME}].value"),
            value: format!("all of {range}"),
            permitted: format!("a set that leaves ports of {range}"),
            reason: "no port of net.ipv4.ip_local_port_range is left for outgoing connections"
                .to_owned(),
            instead: find(NAME).map_or("", |key| key.advice).to_owned(),
        })
}

fn nr_open_problem(prefix: &str, checked: &CheckedTuning) -> Option<Problem> {
    let (nofile, nr_open) = (checked.nofile?, number_of(checked, "fs.nr_open")?);
    (nofile > nr_open).then(|| Problem {
        field: format!("{prefix}ulimits[nofile].soft"),
        value: nofile.to_string(),
        permitted: format!("at most {nr_open}, the fs.nr_open asked for"),
        reason: "no process gets more open files than fs.nr_open".to_owned(),
        instead: String::new(),
    })
}

fn port_range(checked: &CheckedTuning) -> Option<(u64, u64)> {
    match value_of(checked, "net.ipv4.ip_local_port_range")? {
        Value::Numbers(numbers) => Some((*numbers.first()?, *numbers.last()?)),
        Value::Ports(_) | Value::Word(_) => None,
    }
}

/// The first number of a key's value.
fn number_of(checked: &CheckedTuning, name: &str) -> Option<u64> {
    match value_of(checked, name)? {
        Value::Numbers(numbers) => numbers.first().copied(),
        Value::Ports(_) | Value::Word(_) => None,
    }
}

fn value_of<'a>(checked: &'a CheckedTuning, name: &str) -> Option<&'a Value> {
    let sysctl = checked
        .sysctls
        .iter()
        .find(|sysctl| sysctl.key.name == name)?;
    Some(&sysctl.value)
}

#[cfg(test)]
mod tests {
    use crate::{SysctlSetting, check_sysctls};

    fn is_permitted(settings: &[(&str, &str)]) -> bool {
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| SysctlSetting {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
            })
            .collect();
        check_sysctls(&settings, &[]).is_ok()
    }

    #[test]
    fn reserved_ports_leave_one_to_connect_from() {
        const RESERVED: &str = "net.ipv4.ip_local_reserved_ports";
        const RANGE: &str = "net.ipv4.ip_local_port_range";
        assert!(!is_permitted(&[(RESERVED, "1-65535")]));
        assert!(!is_permitted(&[(RESERVED, "32768-60999")]));
        assert!(is_permitted(&[(RESERVED, "32768-60998")]));
        let narrow = (RANGE, "10240 20000");
        assert!(is_permitted(&[(RESERVED, "32768-60999"), narrow]));
        assert!(!is_permitted(&[
            narrow,
            (RESERVED, "10240-15000,15001-20000")
        ]));
    }
}
