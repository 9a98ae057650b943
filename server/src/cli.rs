//! The command line. A flag, its environment variable and the key in the settings file have one
//! name.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use tunedweb_config::{Config, Problems, Settings};

/// Serves static files over HTTP/1.1, one worker a CPU.
///
/// Serve a folder: tunedweb-server --root site --listen 127.0.0.1:8080
///
/// Human-readable text goes to standard error. Exit codes: 0 after SIGTERM or SIGINT, 1 where the
/// settings or the start are at fault, 2 where the command line is.
#[derive(Debug, Parser)]
#[command(
    name = "tunedweb-server",
    version,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Report every problem of a settings file, and exit with 1 if there is one.
    Check {
        /// Settings file (TOML).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// What to serve. Flags win over the environment, both over the settings file.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Settings file (TOML).
    #[arg(long, value_name = "FILE", env = "TUNEDWEB_SERVER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Folder that is served; nothing outside it is ever opened.
    #[arg(long, value_name = "DIR", env = "TUNEDWEB_SERVER_ROOT")]
    pub(crate) root: Option<PathBuf>,
    /// Address that requests are answered on [default: 0.0.0.0:8080].
    #[arg(long, value_name = "ADDR:PORT", env = "TUNEDWEB_SERVER_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address of /healthz, /readyz, /metrics and /tuning [default: none].
    #[arg(long, value_name = "ADDR:PORT", env = "TUNEDWEB_SERVER_ADMIN")]
    pub(crate) admin: Option<SocketAddr>,
    /// Worker threads [default: one for each CPU that the affinity mask and the cgroup permit].
    #[arg(long, value_name = "N", env = "TUNEDWEB_SERVER_WORKERS")]
    pub(crate) workers: Option<u16>,
}

/// Why there are no settings to serve with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Neither a folder nor a file.
    #[error(
        "nothing to serve: name a folder with --root DIR or a settings file with --config FILE"
    )]
    Nothing,
    /// The file cannot be read.
    #[error("cannot read the settings file {path:?}")]
    ReadFile {
        /// As given.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The settings are not permitted.
    #[error("the settings have problems")]
    Check(#[source] Problems),
}

impl Serve {
    /// Settings from the file and the flags, checked.
    pub(crate) fn config(self) -> Result<Config, SettingsError> {
        let mut settings = match (&self.config, &self.root) {
            (Some(path), _) => read(path)?,
            (None, Some(root)) => Settings::new(root.clone()),
            (None, None) => return Err(SettingsError::Nothing),
        };
        let Self {
            config: _,
            root,
            listen,
            admin,
            workers,
        } = self;
        settings.root = root.unwrap_or(settings.root);
        settings.listen = listen.unwrap_or(settings.listen);
        settings.admin = admin.or(settings.admin);
        settings.server.workers = workers.or(settings.server.workers);
        Config::try_from(settings).map_err(SettingsError::Check)
    }
}

/// Reads and checks a settings file.
pub(crate) fn check(path: &Path) -> Result<Config, SettingsError> {
    Config::try_from(read(path)?).map_err(SettingsError::Check)
}

fn read(path: &Path) -> Result<Settings, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::ReadFile {
        path: path.to_owned(),
        source,
    })?;
    Settings::parse(&text).map_err(SettingsError::Check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flag_variable_and_key_have_one_name() {
        let command = Cli::command();
        for argument in command.get_arguments() {
            let Some(variable) = argument.get_env() else {
                continue;
            };
            let flag = argument.get_long().unwrap();
            let expected = format!("TUNEDWEB_SERVER_{}", flag.to_uppercase().replace('-', "_"));
            assert_eq!(variable.to_str(), Some(expected.as_str()));
        }
    }

    #[test]
    fn flags_win_over_the_file_and_are_checked_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        std::fs::write(&path, "root = '/srv'\n[server]\nworkers = 2\n").unwrap();
        let serve = |workers| Serve {
            config: Some(path.clone()),
            root: Some(PathBuf::from("/other")),
            listen: None,
            admin: None,
            workers,
        };
        let config = serve(Some(3)).config().unwrap();
        assert_eq!(
            (config.root, config.workers),
            (PathBuf::from("/other"), Some(3))
        );
        assert!(matches!(
            serve(Some(0)).config(),
            Err(SettingsError::Check(_))
        ));
    }
}
