//! Live progress on a terminal; nothing where there is none.

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{clock::Stamp, threads::Tick, units::show_bytes};

/// A line that shows how far a phase is.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Stamp,
    whole: Whole,
    last: (Stamp, Tick),
}

/// What the whole of a phase is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whole {
    Time(Duration),
    Operations(u64),
    Unknown,
}

impl Progress {
    /// Shows a phase that begins now.
    pub(crate) fn new(name: &str, whole: Whole) -> Self {
        let shown = stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let length = match whole {
            Whole::Time(time) => Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            Whole::Operations(count) => Some(count),
            Whole::Unknown => None,
        };
        let template = if length.is_some() {
            "{prefix:12} {bar:30} {percent:>3} %  {msg}"
        } else {
            "{prefix:12} {spinner}  {msg}"
        };
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(length, target).with_style(style).with_prefix(name.to_owned());
        let now = Stamp::now();
        Self { bar, start: now, whole, last: (now, Tick::default()) }
    }

    /// The measurement begins at `start`, after a warm-up.
    pub(crate) fn starts(&mut self, start: Stamp) {
        self.start = start;
    }

    /// Shows how far it is.
    pub(crate) fn tick(&mut self, tick: Tick) {
        if self.bar.is_hidden() {
            return;
        }
        let now = Stamp::now();
        let (before, last) = self.last;
        let seconds = now.since(before).as_secs_f64();
        if seconds < 0.1 {
            return;
        }
        self.last = (now, tick);
        let position = match self.whole {
            Whole::Time(_) => u64::try_from(now.since(self.start).as_millis()).unwrap_or(u64::MAX),
            // One that failed was one of them.
            _ => tick.operations + tick.errors,
        };
        self.bar.set_position(position);
        #[expect(clippy::cast_precision_loss, reason = "rates for people")]
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let mut message = format!("{} operations, {:.0}/s", tick.operations, rate(tick.operations, last.operations));
        if tick.bytes > 0 {
            message += &format!(", {}/s", show_bytes(rate(tick.bytes, last.bytes)));
        }
        if tick.errors > 0 {
            message += &format!(", {} errors", tick.errors);
        }
        if self.start > now {
            "warming up".clone_into(&mut message);
        }
        self.bar.set_message(message);
    }

    /// One more of [`Whole::Operations`] is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Progress {
    /// Where what is shown fails, its line is not to stand before the error.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
