//! Whether the run is to end early, as signals ask for.

use std::{
    future::poll_fn,
    io::{Write, stderr},
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use anyhow::Context;
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};

/// Set when the run is to end early: what is under way has a moment to end ([`crate::limit`]), what was measured is reported, and what was written is removed.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);
/// Set when nothing is waited for any more: what was measured is reported, and that is all.
pub(crate) static HURRY: AtomicBool = AtomicBool::new(false);
/// Set when what was measured is reported.
static TOLD: AtomicBool = AtomicBool::new(false);

/// How long whoever does not wait is given to report what was measured.
const TELLING_MAX: Duration = Duration::from_secs(4);
/// How often is looked whether that is done.
const LOOK: Duration = Duration::from_millis(20);
/// Exit code of a program that two signals ended.
const STOPPED_TWICE: i32 = 130;

/// Whether the run is to end early.
pub(crate) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The first SIGINT or SIGTERM ends the measurement: what was measured is reported, what was written is removed. The second ends the program, as soon as it has reported.
///
/// # Errors
/// When the signals can not be received.
pub(crate) fn stop_when_asked() -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the client")?;
    let entered = runtime.enter();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let signals = kinds.into_iter().map(signal).collect::<Result<Vec<_>, _>>();
    let mut signals = signals.context("listening to signals")?;
    drop(entered);
    std::thread::spawn(move || {
        runtime.block_on(async {
            any_of(&mut signals).await;
            STOP.store(true, Ordering::Relaxed);
            any_of(&mut signals).await;
            HURRY.store(true, Ordering::Relaxed);
            let told = async {
                while !TOLD.load(Ordering::Relaxed) {
                    tokio::time::sleep(LOOK).await;
                }
            };
            // Whoever does not read the report does not get it.
            let _ = tokio::time::timeout(TELLING_MAX, told).await;
            std::process::exit(STOPPED_TWICE);
        });
    });
    Ok(())
}

/// What was measured is reported, or could not be, as `outcome` says: whoever has asked for it twice sees the end of the program, and nothing is removed.
pub(crate) fn has_told(outcome: &anyhow::Result<()>) {
    if HURRY.load(Ordering::Relaxed) {
        if let Err(error) = outcome {
            let _ = writeln!(stderr(), "gabion: {error:#}");
        }
        std::process::exit(STOPPED_TWICE);
    }
    TOLD.store(true, Ordering::Relaxed);
}

async fn any_of(signals: &mut [Signal]) {
    poll_fn(|context| {
        let came = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if came { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
