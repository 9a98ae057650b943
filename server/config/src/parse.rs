//! Between the text of a settings file and [`Settings`].

use toml::Table;

use crate::fields;
use crate::problem::{Problem, Problems};
use crate::settings::{ServerSettings, Settings};

impl Settings {
    /// Reads the text of a settings file and reports everything that is wrong with it at once.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let table: Table = text
            .parse()
            .map_err(|error| Problems(vec![not_toml(text, &error)]))?;
        let mut problems = fields::check(&table);
        if !table.contains_key("root") {
            problems.push(Problem::new(
                "root",
                "nothing",
                "the path of a folder",
                "name the folder to serve",
            ));
        }
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        table
            .try_into()
            .map_err(|error: toml::de::Error| Problems(vec![other(&error)]))
    }

    /// The text of the settings file that [`Settings::parse`] reads back to the same value.
    pub fn to_toml(&self) -> Result<String, Problems> {
        toml::to_string(self).map_err(|error| Problems(vec![other(&error)]))
    }

    /// Everything that is out of range, as paths of the settings file.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        match Table::try_from(self) {
            Ok(table) => fields::check(&table),
            Err(error) => vec![other(&error)],
        }
    }
}

impl ServerSettings {
    /// Everything that is out of range, as paths below `at`, such as `spec.server`.
    pub fn problems(&self, at: &str) -> Vec<Problem> {
        let found = match toml::Value::try_from(self) {
            Ok(value) => fields::check(&Table::from_iter([("server".to_owned(), value)])),
            Err(error) => vec![other(&error)],
        };
        let below = |problem: Problem| Problem {
            path: problem
                .path
                .strip_prefix("server")
                .map_or_else(|| problem.path.clone(), |rest| format!("{at}{rest}")),
            ..problem
        };
        found.into_iter().map(below).collect()
    }
}

fn not_toml(text: &str, error: &toml::de::Error) -> Problem {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    Problem::new(
        format!("line {line}, column {column}"),
        error.message(),
        "TOML 1.0",
        "correct that line first; the settings are checked once the file can be read",
    )
}

/// A value that TOML cannot carry, such as a path that is not UTF-8.
fn other(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        "settings",
        error.to_string(),
        "values that TOML can carry",
        "choose another one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        Settings::parse(text)
            .unwrap_err()
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_file_with_a_root_alone_has_every_default() {
        let settings = Settings::parse("root = '/srv'").unwrap();
        assert_eq!(settings.server, ServerSettings::default());
        assert_eq!(settings.listen.port(), 8080);
    }

    #[test]
    fn what_is_rendered_reads_back_the_same() {
        let mut settings = Settings::parse("root = '/srv'\nadmin = '127.0.0.1:9090'").unwrap();
        settings.server.workers = Some(3);
        settings.ulimits.nofile = Some(16_384);
        settings.server.index = vec!["a.html".to_owned(), "b.html".to_owned()];
        assert_eq!(
            Settings::parse(&settings.to_toml().unwrap()).unwrap(),
            settings
        );
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let found = problems(
            "listen = 'localhost'\n[server]\nworkers = 0\nindex = ['a/b', 3]\n\
             [server.listener]\nbacklog = 3240000\n[server.keepAlive]\nidleTimeout = 3\n",
        );
        for part in [
            "root: found nothing",
            "listen: found \"localhost\"",
            "server.workers: found 0, permitted: a whole number from 1 to 256",
            "server.index[0]: found \"a/b\"",
            "server.index[1]: found 3",
            "server.listener.backlog: found 3240000, permitted: a whole number from 1 to 65535",
            "did you mean idleTimeoutSeconds?",
        ] {
            assert!(
                found.iter().any(|line| line.contains(part)),
                "{part} is not in {found:#?}"
            );
        }
        assert_eq!(found.len(), 7, "{found:#?}");
    }

    #[test]
    fn a_name_in_the_wrong_section_is_told_where_it_belongs() {
        let found = problems("root = '/srv'\nbacklog = 10");
        assert!(
            found[0].contains("did you mean server.listener.backlog?"),
            "{found:?}"
        );
    }

    #[test]
    fn a_section_given_as_a_value_is_a_problem() {
        let found = problems("root = '/srv'\nserver = 3");
        assert!(found[0].contains("write [server]"), "{found:?}");
    }

    #[test]
    fn text_that_is_not_toml_names_the_line() {
        let found = problems("root = '/srv'\nlisten = \n");
        assert!(found[0].starts_with("line 2, column"), "{found:?}");
    }

    #[test]
    fn settings_of_a_resource_name_their_path_in_the_resource() {
        let mut server = ServerSettings::default();
        server.listener.backlog = 70_000;
        let found = server.problems("spec.server");
        assert_eq!(found[0].path, "spec.server.listener.backlog");
        assert_eq!(found.len(), 1);
    }
}
