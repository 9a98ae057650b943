//! Every setting, as data: where it stands, what is permitted there, what to do otherwise.
//!
//! One table serves the check of a file and of a resource; a test holds it against the schema of
//! the resource, so that the API server and the server permit the same.

use toml::{Table, Value};

use crate::nearest::nearest;
use crate::problem::Problem;

/// One setting.
pub(crate) struct Field {
    /// Keys from the top of the file, joined by dots.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// What to do when the value is not permitted.
    advice: &'static str,
}

/// What a setting holds.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A whole number within bounds, both included.
    Integer { min: u64, max: u64 },
    /// A folder.
    Folder,
    /// `ADDRESS:PORT`.
    Address,
    /// File names without a folder.
    FileNames { items_max: usize, bytes_max: usize },
}

/// Names that have no bound here are in [`crate::settings`] with the reason for their default.
pub(crate) const FIELDS: &[Field] = &[
    Field {
        path: "root",
        kind: Kind::Folder,
        advice: "name the folder to serve",
    },
    Field {
        path: "listen",
        kind: Kind::Address,
        advice: "write it as \"0.0.0.0:8080\"",
    },
    Field {
        path: "admin",
        kind: Kind::Address,
        advice: "write it as \"0.0.0.0:9090\"",
    },
    // The smallest leaves room for the listeners and a few connections; the largest is the default
    // of fs.nr_open (proc_sys_fs(5)).
    integer(
        "ulimits.nofile",
        64,
        1_048_576,
        "omit it to take the hard limit of the process",
    ),
    integer(
        "server.workers",
        1,
        256,
        "omit it for one worker a CPU that may be used",
    ),
    integer(
        "server.listener.backlog",
        1,
        65_535,
        "a longer queue only makes clients wait for answers they gave up on; raise \
         net.core.somaxconn to the same value, the kernel cuts to it",
    ),
    integer(
        "server.maxConnectionsPerWorker",
        1,
        1_048_576,
        "every connection takes an open file; see ulimits.nofile",
    ),
    integer(
        "server.keepAlive.idleTimeoutSeconds",
        0,
        86_400,
        "0 closes after each response",
    ),
    integer(
        "server.keepAlive.maxRequests",
        1,
        1_000_000_000,
        "1 closes after each response",
    ),
    integer(
        "server.timeouts.headerSeconds",
        1,
        3_600,
        "60 suits slow clients too",
    ),
    integer(
        "server.timeouts.sendSeconds",
        1,
        3_600,
        "60 suits slow clients too",
    ),
    integer(
        "server.timeouts.drainSeconds",
        1,
        600,
        "keep it below the time that the supervisor waits before it kills",
    ),
    integer(
        "server.openFileCache.maxEntries",
        0,
        1_000_000,
        "0 opens the file for each request",
    ),
    integer(
        "server.openFileCache.idleTimeoutSeconds",
        1,
        86_400,
        "60 is the default",
    ),
    integer(
        "server.openFileCache.minUses",
        1,
        1_000,
        "1 keeps a file from its first request",
    ),
    Field {
        path: "server.index",
        kind: Kind::FileNames {
            items_max: 8,
            bytes_max: 255,
        },
        advice: "name files that are looked up inside the folder asked for, such as index.html",
    },
];

const fn integer(path: &'static str, min: u64, max: u64, advice: &'static str) -> Field {
    Field {
        path,
        kind: Kind::Integer { min, max },
        advice,
    }
}

/// Every problem of `table`, in the order of the table of fields, unknown names first.
pub(crate) fn check(table: &Table) -> Vec<Problem> {
    let mut problems = Vec::new();
    unknown_names(table, "", &mut problems);
    for field in FIELDS {
        if let Some(value) = lookup(table, field.path) {
            field.check(value, &mut problems);
        }
    }
    problems
}

impl Field {
    fn check(&self, value: &Value, problems: &mut Vec<Problem>) {
        match (self.kind, value) {
            (Kind::Integer { min, max }, Value::Integer(number))
                if u64::try_from(*number).is_ok_and(|n| (min..=max).contains(&n)) => {}
            (Kind::Folder, Value::String(text)) if !text.is_empty() => {}
            (Kind::Address, Value::String(text))
                if text.parse::<std::net::SocketAddr>().is_ok() => {}
            (
                Kind::FileNames {
                    items_max,
                    bytes_max,
                },
                Value::Array(items),
            ) if items.len() <= items_max => {
                for (at, item) in items.iter().enumerate() {
                    if !is_file_name(item, bytes_max) {
                        problems.push(self.problem(&format!("{}[{at}]", self.path), item));
                    }
                }
            }
            _ => problems.push(self.problem(self.path, value)),
        }
    }

    fn problem(&self, path: &str, value: &Value) -> Problem {
        Problem::new(path, shown(value), self.kind.permitted(), self.advice)
    }
}

impl Kind {
    fn permitted(self) -> String {
        match self {
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Folder => "the path of a folder".to_owned(),
            Self::Address => "ADDRESS:PORT with a numeric address".to_owned(),
            Self::FileNames {
                items_max,
                bytes_max,
            } => format!(
                "at most {items_max} file names of 1 to {bytes_max} bytes without a slash or a \
                 leading dot"
            ),
        }
    }
}

/// A name that the kernel takes as one component and that the dotfile rule does not hide.
fn is_file_name(value: &Value, bytes_max: usize) -> bool {
    value.as_str().is_some_and(|name| {
        (1..=bytes_max).contains(&name.len())
            && !name.starts_with('.')
            && !name.contains(['/', '\0'])
    })
}

/// The value as a person would write it, cut so that a message stays a line.
fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 80;
    let text = value.to_string();
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    text.chars().take(CHARS_MAX).chain("…".chars()).collect()
}

fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let first = table.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.as_table()?.get(key))
}

fn unknown_names(table: &Table, prefix: &str, problems: &mut Vec<Problem>) {
    for (key, value) in table {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        let is_section = FIELDS.iter().any(|field| is_below(field.path, &path));
        match value {
            Value::Table(inner) if is_section => unknown_names(inner, &path, problems),
            _ if is_section => problems.push(Problem::new(
                &path,
                shown(value),
                "a table of settings",
                format!("write [{path}] and the settings below it"),
            )),
            _ if FIELDS.iter().any(|field| field.path == path) => {}
            _ => problems.push(unknown_name(key, prefix, path)),
        }
    }
}

fn unknown_name(key: &str, prefix: &str, path: String) -> Problem {
    let siblings = siblings(prefix);
    let advice = match nearest(key, siblings.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => match nearest(key, FIELDS.iter().map(|field| last(field.path))) {
            Some(name) => format!(
                "did you mean {}?",
                FIELDS
                    .iter()
                    .map(|f| f.path)
                    .find(|p| last(p) == name)
                    .unwrap_or(name)
            ),
            None => "remove it".to_owned(),
        },
    };
    Problem::new(path, "an unknown name", siblings.join(", "), advice)
}

/// The names that may stand in the section `prefix`.
fn siblings(prefix: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for field in FIELDS {
        let rest = if prefix.is_empty() {
            Some(field.path)
        } else {
            field
                .path
                .strip_prefix(prefix)
                .and_then(|rest| rest.strip_prefix('.'))
        };
        if let Some(name) = rest.and_then(|rest| rest.split('.').next())
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

fn is_below(path: &str, section: &str) -> bool {
    path.strip_prefix(section)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn last(path: &'static str) -> &'static str {
    path.rsplit('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ServerSettings;

    /// `(path, minimum, maximum)` of every number in the schema, and the paths of all leaves.
    fn leaves(
        schema: &serde_json::Value,
        root: &serde_json::Value,
        path: &str,
        found: &mut Vec<(String, Option<u64>, Option<u64>)>,
    ) {
        let schema = match schema.get("$ref").and_then(|r| r.as_str()) {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        };
        let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) else {
            let bound = |name| schema.get(name).and_then(serde_json::Value::as_u64);
            let list = schema.get("maxItems").and_then(serde_json::Value::as_u64);
            found.push((path.to_owned(), bound("minimum"), bound("maximum").or(list)));
            return;
        };
        for (name, property) in properties {
            leaves(property, root, &format!("{path}.{name}"), found);
        }
    }

    #[test]
    fn the_schema_of_the_resource_permits_what_the_check_permits() {
        let schema = serde_json::to_value(schemars::schema_for!(ServerSettings)).unwrap();
        let mut of_schema = Vec::new();
        leaves(&schema, &schema, "server", &mut of_schema);
        let mut of_check: Vec<_> = FIELDS
            .iter()
            .filter(|field| field.path.starts_with("server."))
            .map(|field| match field.kind {
                Kind::Integer { min, max } => (field.path.to_owned(), Some(min), Some(max)),
                Kind::FileNames { items_max, .. } => {
                    (field.path.to_owned(), None, Some(items_max as u64))
                }
                Kind::Folder | Kind::Address => (field.path.to_owned(), None, None),
            })
            .collect();
        of_schema.sort();
        of_check.sort();
        assert_eq!(of_schema, of_check);
    }

    #[test]
    fn every_bound_is_permitted_and_the_next_number_is_not() {
        for field in FIELDS {
            let Kind::Integer { min, max } = field.kind else {
                continue;
            };
            let problems = |number: i64| {
                let mut problems = Vec::new();
                field.check(&Value::Integer(number), &mut problems);
                problems.len()
            };
            let (min, max) = (i64::try_from(min).unwrap(), i64::try_from(max).unwrap());
            assert_eq!(
                [
                    problems(min - 1),
                    problems(min),
                    problems(max),
                    problems(max + 1)
                ],
                [1, 0, 0, 1],
                "{}",
                field.path
            );
        }
    }
}
