//! A worker: one thread, one runtime, one listener, its own connections. Workers share nothing on
//! the way from request to response but what they only read.

mod accept;
mod answer;
pub(crate) mod clock;
mod connection;
mod exchange;
mod slot;
mod supervise;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;
use tunedweb_config::{KeepAliveConfig, TimeoutConfig};

use crate::counters::Counters;
use crate::files::{Files, View};
use crate::http::status::Status;
use crate::lifecycle::{Lifecycle, Stage};
use crate::respond::{Persistence, Responder};
use crate::sys;
use clock::Clock;
use slot::Slots;
pub use supervise::WorkerError;
pub(crate) use supervise::spawn;

/// In draining, how long an idle connection may still send a request.
const DRAIN_IDLE_GRACE: Duration = Duration::from_secs(1);

/// Room for what is kept of an incomplete head, at most 16 KiB, and as much for one read. What one
/// read brings beyond a head is pipelined requests, so this bounds them, too.
const INPUT_BYTES: usize = 32 * 1024;

/// Room for one batch of responses and the response that ends it.
const OUTPUT_BYTES: usize = 64 * 1024;

/// What every worker gets to know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) files: Arc<Files>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) started: Instant,
    pub(crate) connections_max: usize,
    pub(crate) keep_alive: KeepAliveConfig,
    pub(crate) timeouts: TimeoutConfig,
}

/// The listener of a worker, until it closes.
#[derive(Debug)]
struct Listener(RefCell<Option<Rc<TcpListener>>>);

impl Listener {
    fn new(listener: TcpListener) -> Self {
        Self(RefCell::new(Some(Rc::new(listener))))
    }

    fn get(&self) -> Option<Rc<TcpListener>> {
        self.0.borrow().clone()
    }

    /// Closes it once nobody holds what [`Self::get`] gave.
    fn close(&self) {
        self.0.take();
    }
}

/// One worker, as its tasks see it.
#[derive(Debug)]
struct Worker {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    listener: Rc<Listener>,
    view: View,
    clock: Clock,
    slots: Rc<Slots>,
    /// Connections close after their next response.
    draining: Cell<bool>,
    /// The stage of the server has changed.
    stage_changed: Notify,
    /// Bytes just read, by whichever connection is served at the moment. A connection that waits
    /// holds no buffer.
    input: RefCell<Box<[u8]>>,
    /// Responses to what was just read.
    output: RefCell<Vec<u8>>,
}

/// Serves until the server has drained or its time is up.
fn run(shared: &Arc<Shared>, counters: &Arc<Counters>, listener: &Rc<Listener>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    let worker = Worker::new(
        Arc::clone(shared),
        Arc::clone(counters),
        Rc::clone(listener),
    );
    let worker = Rc::new(worker);
    // in one task, so that a panic in either ends the worker and is seen
    runtime.block_on(async {
        tokio::select! {
            never = worker.tick_on() => match never {},
            result = serve(&worker) => result,
        }
    })
}

async fn serve(worker: &Rc<Worker>) -> io::Result<()> {
    accept::run(worker).await?;
    worker.ended().await;
    Ok(())
}

impl Worker {
    fn new(shared: Arc<Shared>, counters: Arc<Counters>, listener: Rc<Listener>) -> Self {
        Self {
            view: View::new(Arc::clone(&shared.files)),
            clock: Clock::new(shared.started),
            slots: Rc::default(),
            draining: Cell::new(false),
            stage_changed: Notify::new(),
            input: RefCell::new(vec![0; INPUT_BYTES].into()),
            output: RefCell::new(Vec::with_capacity(OUTPUT_BYTES)),
            shared,
            counters,
            listener,
        }
    }

    /// Moves the clock on, for ever.
    async fn tick_on(&self) -> Infallible {
        let mut stage = Stage::Serving;
        loop {
            let to_next = self.tick();
            let stage_now = self.shared.lifecycle.stage();
            if stage_now != stage {
                stage = stage_now;
                self.enter(stage);
            }
            tokio::time::sleep(to_next).await;
        }
    }

    /// Does what falls due, and returns the time to the next tick.
    fn tick(&self) -> Duration {
        let to_next = self.clock.tick(SystemTime::now());
        let mut response_408 = Vec::new();
        self.responder(&mut response_408)
            .status(Status::RequestTimeout);
        self.slots.tick(&slot::Tick {
            clock: &self.clock,
            response_408: &response_408,
            send_timeout: self.shared.timeouts.send,
            counters: &self.counters,
        });
        self.view.drop_retired();
        let queue = self
            .listener
            .get()
            .and_then(|listener| sys::accept_queue(&listener).ok());
        self.counters
            .accept_queue
            .set(queue.map_or(0, |queue| u64::from(queue.length)));
        self.counters.ticked_ms.set(self.clock.now_ms());
        to_next
    }

    fn responder<'a>(&'a self, output: &'a mut Vec<u8>) -> Responder<'a> {
        Responder {
            output,
            clock: &self.clock,
            persistence: Persistence::Close,
            head_only: false,
        }
    }

    /// How long a connection without a request is kept.
    fn idle_timeout(&self) -> Duration {
        let idle_timeout = self.shared.keep_alive.idle_timeout;
        if self.draining.get() {
            idle_timeout.min(DRAIN_IDLE_GRACE)
        } else {
            idle_timeout
        }
    }

    fn enter(&self, stage: Stage) {
        if stage >= Stage::Draining && !self.draining.replace(true) {
            self.slots.hurry_idle(&self.clock, DRAIN_IDLE_GRACE);
        }
        self.stage_changed.notify_waiters();
    }

    /// Returns once the stage is `stage` or a later one.
    async fn reached(&self, stage: Stage) {
        while self.shared.lifecycle.stage() < stage {
            self.stage_changed.notified().await;
        }
    }

    /// Returns once there is no connection left, or no time.
    async fn ended(&self) {
        while self.slots.len() > 0 && self.shared.lifecycle.stage() < Stage::Ended {
            tokio::time::sleep(clock::TICK / 10).await;
        }
        self.counters.cut.add(self.slots.under_way() as u64);
    }
}
