//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::duration;
use crate::url::Url;

/// Makes HTTP load and measures the answers.
#[derive(Debug, Parser)]
#[command(name = "tunedweb-loadgen", version, propagate_version = true)]
pub struct Cli {
    /// What kind of load.
    #[command(subcommand)]
    pub command: Command,
}

/// What kind of load.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Requests over HTTP/1.1, each connection's next one when its former one was answered
    #[command(after_long_help = EXAMPLES)]
    Http(HttpArgs),
}

/// The load.
#[derive(Args, Debug)]
pub struct HttpArgs {
    /// Where the load goes: http://HOST[:PORT][/PATH][?QUERY]
    ///
    /// The host is resolved once; the first address that takes a connection gets all of the load.
    #[arg(env = "TUNEDWEB_LOADGEN_URL")]
    pub url: Url,

    /// Threads, each with its share of the connections; at most one a connection or request
    #[arg(short, long, default_value_t = 1, env = "TUNEDWEB_LOADGEN_THREADS",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Connections held open at the same time, over all threads
    #[arg(short, long, default_value_t = 100, env = "TUNEDWEB_LOADGEN_CONNECTIONS",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub connections: u32,

    /// Length of the load [default: 30s, or until all requests of -n are done]
    ///
    /// A request that is under way at the end is counted neither as answered nor as failed.
    #[arg(short, long, env = "TUNEDWEB_LOADGEN_DURATION", value_parser = duration::parse_positive)]
    pub duration: Option<Duration>,

    /// Make exactly so many requests; with -d, at most so many
    #[arg(short = 'n', long, env = "TUNEDWEB_LOADGEN_REQUESTS",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,

    /// A new connection for each request; its response time starts at connect
    ///
    /// The request carries `Connection: close`, and the server is given a second to close first:
    /// the side that closes first keeps the port for 60 s (TIME_WAIT).
    #[arg(long, env = "TUNEDWEB_LOADGEN_SHORT")]
    pub short: bool,

    /// Time limit of a request, from sending it to its last byte; at most 60s
    #[arg(long, default_value = "10s", env = "TUNEDWEB_LOADGEN_REQUEST_TIMEOUT",
          value_parser = duration::parse_time_limit)]
    pub request_timeout: Duration,

    /// Try so long to resolve the host and to connect, before the load starts
    #[arg(long, default_value = "0s", env = "TUNEDWEB_LOADGEN_CONNECT_WAIT",
          value_parser = duration::parse)]
    pub connect_wait: Duration,

    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What becomes of the result.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Print the result as JSON on standard output
    #[arg(long, env = "TUNEDWEB_LOADGEN_JSON")]
    pub json: bool,

    /// A line a second on standard error, even when it is not a terminal
    #[arg(long, env = "TUNEDWEB_LOADGEN_PROGRESS")]
    pub progress: bool,

    /// Name of the run that the result belongs to
    #[arg(long, default_value = "", env = "TUNEDWEB_LOADGEN_RUN", value_parser = parse_run)]
    pub run: String,

    /// Index of this process within the run [default: $JOB_COMPLETION_INDEX, or 0]
    #[arg(long, env = "TUNEDWEB_LOADGEN_INDEX")]
    pub index: Option<u32>,

    /// Write the result to this file, for Kubernetes: /dev/termination-log
    #[arg(
        long,
        value_name = "PATH",
        env = "TUNEDWEB_LOADGEN_TERMINATION_MESSAGE"
    )]
    pub termination_message: Option<PathBuf>,

    /// Print the histogram as log lines on standard output, for a merge with those of other pods
    #[arg(long, env = "TUNEDWEB_LOADGEN_HISTOGRAM_LOG")]
    pub histogram_log: bool,
}

const EXAMPLES: &str = "\
Examples:
  tunedweb-loadgen http http://127.0.0.1:8080/
      100 connections for 30 seconds; the result for people on standard error
  tunedweb-loadgen http http://site.web/ -t 2 -c 64 -d 10s --json
      the result as JSON on standard output
  tunedweb-loadgen http http://site.web/index.html -c 10 -n 100000 --short
      exactly 100,000 requests, each on a connection of its own

Each option can be given as environment variable: --connect-wait is
TUNEDWEB_LOADGEN_CONNECT_WAIT.

Exit codes: 0 measured; 1 the load could not start, was stopped by a signal, or
nothing was answered; 2 the command line is wrong.";

/// A name without white space, no longer than that of a Kubernetes object.
fn parse_run(name: &str) -> Result<String, String> {
    let permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    if name.len() > 253 || !name.bytes().all(permitted) {
        return Err("must be at most 253 letters, digits, '-' and '.'".to_owned());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_has_the_same_word_as_environment_variable() {
        let command = Cli::command();
        let http = command.find_subcommand("http").unwrap();
        let options = http
            .get_arguments()
            .filter(|argument| argument.get_id() != "help" && argument.get_id() != "version");
        for argument in options {
            let word = argument.get_id().as_str().to_uppercase();
            let expected = format!("TUNEDWEB_LOADGEN_{word}");
            let found = argument.get_env().and_then(|name| name.to_str());
            assert_eq!(found, Some(expected.as_str()));
        }
    }

    #[test]
    fn a_run_name_has_no_white_space() {
        assert!(parse_run("site-keepalive-7f3c").is_ok());
        assert!(parse_run("a b").is_err());
        assert!(parse_run(&"x".repeat(254)).is_err());
    }
}
