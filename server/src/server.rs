//! Putting a server together, and taking it down.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tunedweb_config::{Config, TuningReport};

use crate::counters::Counters;
use crate::files::Files;
use crate::files::root::{Root, RootError};
use crate::lifecycle::{Farewell, Lifecycle, Stage, Stop};
use crate::limits::{raise_nofile, share_out};
use crate::listen::{ListenError, bind_each, bind_one};
use crate::report::{Reached, tuning_report};
use crate::worker::{Shared, WorkerError};
use crate::{admin, cpus, worker};

/// How often idle entries of the file cache are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// Probes, a scraper and an operator at once.
const ADMIN_BACKLOG: i32 = 128;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be served.
    #[error("the root folder cannot be served")]
    Root(#[source] RootError),
    /// The address of `listen`.
    #[error("requests cannot be received")]
    Listen(#[source] ListenError),
    /// The address of `admin`.
    #[error("the admin endpoint cannot be reached")]
    Admin(#[source] ListenError),
    /// A thread, a runtime or a socket of the server itself.
    #[error("cannot start the server's own parts; see the limits of processes and open files")]
    Parts(#[source] io::Error),
}

/// Why a server ended without being asked.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker gave up; the others were drained.
    #[error("the server cannot go on with all its workers")]
    Worker(#[source] WorkerError),
}

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    tuning: TuningReport,
    admin: Option<SocketAddr>,
    started: Instant,
    drain: Duration,
    lifecycle: Arc<Lifecycle>,
    files: Arc<Files>,
    workers: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counters>>,
    ends: UnboundedReceiver<Result<(), WorkerError>>,
}

/// How the end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Requests and responses that were cut off because the time was up.
    pub cut: u64,
}

impl Server {
    /// Starts all threads; on return the server accepts connections.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let started = Instant::now();
        let workers = cpus::workers(config.workers);
        let nofile = raise_nofile(config.nofile);
        let budget = share_out(
            nofile.soft,
            workers.running,
            config.file_cache.entries_max,
            config.connections_max,
        );
        let root = Root::open(&config.root).map_err(StartError::Root)?;
        let count = usize::from(workers.running);
        let listeners =
            bind_each(config.listen, config.backlog, count).map_err(StartError::Listen)?;
        let admin = config
            .admin
            .map(|address| bind_one(address, ADMIN_BACKLOG))
            .transpose()
            .map_err(StartError::Admin)?;
        let files = Files::new(
            root,
            config.index.clone(),
            &config.file_cache,
            budget.cached_files_max,
        )
        .map_err(StartError::Parts)?;
        let reached = Reached {
            workers,
            nofile,
            connections_max: budget.connections_max,
        };
        let tuning = tuning_report(config, &listeners, reached).map_err(StartError::Parts)?;
        let shared = Arc::new(Shared {
            files: Arc::new(files),
            lifecycle: Arc::default(),
            started,
            connections_max: usize::try_from(budget.connections_max).unwrap_or(usize::MAX),
            keep_alive: config.keep_alive,
            timeouts: config.timeouts,
        });
        Self::spawn(config, &shared, tuning, listeners, admin).map_err(StartError::Parts)
    }

    fn spawn(
        config: &Config,
        shared: &Arc<Shared>,
        tuning: TuningReport,
        listeners: Vec<TcpListener>,
        admin: Option<TcpListener>,
    ) -> io::Result<Self> {
        let (sender, ends) = unbounded_channel();
        let counters: Vec<Arc<Counters>> = listeners.iter().map(|_| Arc::default()).collect();
        let admin_address = admin.as_ref().map(TcpListener::local_addr).transpose()?;
        let workers = spawn_workers(shared, &counters, listeners, &sender)?;
        let Shared {
            files,
            lifecycle,
            started,
            ..
        } = &**shared;
        if let Some(listener) = admin {
            let state = admin::State {
                started: *started,
                lifecycle: Arc::clone(lifecycle),
                workers: counters.clone(),
                files: Arc::clone(files),
                tuning: tuning.clone(),
            };
            admin::spawn(listener, Arc::new(state))?;
        }
        Ok(Self {
            tuning,
            admin: admin_address,
            started: *started,
            drain: config.timeouts.drain,
            lifecycle: Arc::clone(lifecycle),
            files: Arc::clone(files),
            workers,
            counters,
            ends,
        })
    }

    /// What was asked for and what was reached.
    pub fn tuning(&self) -> &TuningReport {
        &self.tuning
    }

    /// Where requests are answered.
    pub fn listen_address(&self) -> SocketAddr {
        self.tuning.listen
    }

    /// Where the admin endpoint answers.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The stage that the server is in.
    pub fn stage(&self) -> Stage {
        self.lifecycle.stage()
    }

    /// Serves until `stop` asks for the end, then drains. A second request to stop ends at once.
    pub async fn run<F>(mut self, mut stop: impl FnMut() -> F) -> Result<Ended, RunError>
    where
        F: Future<Output = Stop>,
    {
        let failed = loop {
            tokio::select! {
                asked = stop() => break self.farewell(asked, &mut stop).await,
                Some(end) = self.ends.recv() => {
                    if let Err(error) = end {
                        break self.farewell(Stop::Quick, &mut stop).await.or(Some(error));
                    }
                }
                () = tokio::time::sleep(HOUSEKEEPING) => self.keep_house(),
            }
        };
        self.lifecycle.advance(Stage::Ended);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker's thread has panicked");
            }
        }
        let cut = self
            .counters
            .iter()
            .map(|counters| counters.cut.value())
            .sum();
        failed.map_or(Ok(Ended { cut }), |error| Err(RunError::Worker(error)))
    }

    /// Leaving, then draining, until every worker has ended or the time is up.
    async fn farewell<F>(
        &mut self,
        asked: Stop,
        stop: &mut impl FnMut() -> F,
    ) -> Option<WorkerError>
    where
        F: Future<Output = Stop>,
    {
        let Farewell { leaving, draining } = Farewell::new(asked, self.drain);
        self.lifecycle.advance(Stage::Leaving);
        tracing::info!(
            accepting_seconds = leaving.as_secs(),
            draining_seconds = draining.as_secs(),
            "ending: not ready any more"
        );
        tokio::select! {
            () = tokio::time::sleep(leaving) => {}
            _ = stop() => return None,
        }
        self.lifecycle.advance(Stage::Draining);
        tokio::select! {
            failed = self.all_ended() => failed,
            () = tokio::time::sleep(draining) => None,
            _ = stop() => None,
        }
    }

    async fn all_ended(&mut self) -> Option<WorkerError> {
        let mut failed = None;
        while self.workers.iter().any(|worker| !worker.is_finished()) {
            match self.ends.recv().await {
                Some(Err(error)) => failed = failed.or(Some(error)),
                Some(Ok(())) => {}
                None => break,
            }
        }
        failed
    }

    fn keep_house(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.files.drop_idle(now_ms);
    }
}

fn spawn_workers(
    shared: &Arc<Shared>,
    counters: &[Arc<Counters>],
    listeners: Vec<TcpListener>,
    ends: &UnboundedSender<Result<(), WorkerError>>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let parts = counters.iter().zip(listeners).enumerate();
    parts
        .map(|(number, (counters, listener))| {
            worker::spawn(
                number,
                Arc::clone(shared),
                Arc::clone(counters),
                listener,
                ends.clone(),
            )
        })
        .collect()
}
