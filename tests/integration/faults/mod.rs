//! Faults of targets, files and the state directory: what is done, and what must come of it. `docs/TESTING.md` has the table for people.
//!
//! Whatever comes of a fault: no wrong bytes, no acknowledged object lost within m faults, no panic, and where the server refuses to start, a
//! sentence that says what and where.

mod deployment;
pub(crate) mod files;
mod index;
mod membership;
mod running;
mod shard_files;
mod targets;

use gabion_tests::Server;

use deployment::{Filled, Shape, put_new, verify_new};

/// What must come of a fault that was done to a stopped server.
enum Outcome {
    /// It starts, everything is read, writes are taken; all of that again after a crash.
    Served,
    /// It starts and everything is read; writes are refused with 503, for want of targets.
    ReadOnly,
    /// It ends with this code; what it says contains the words of the row.
    Refused(u8),
    /// More is lost than the geometry bears: it refuses to start, or what it serves is right and the rest are errors.
    NeverWrong,
}

/// A row of the table.
struct Row {
    fault: &'static str,
    shape: Shape,
    do_it: fn(&Server, &Filled),
    outcome: Outcome,
    /// Words that the log must contain.
    says: &'static [&'static str],
}

/// Does each row to a copy of the filled deployment, and fails with all rows that did not come out as they must.
async fn run(rows: Vec<Row>) {
    let mut wrong = String::new();
    for row in rows {
        let filled = row.shape.filled().await;
        let mut server = filled.server(row.shape.setup());
        (row.do_it)(&server, filled);
        let outcome = check(&row, filled, &mut server).await.and_then(|()| check_log(&row, &server.log()));
        match outcome {
            Ok(()) => println!("{}: as expected", row.fault),
            Err(error) => wrong += &format!("{}: {error}\n{}\n", row.fault, server.log_tail()),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn check_log(row: &Row, log: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!log.contains("panicked"), "the server panicked");
    for words in row.says {
        anyhow::ensure!(log.contains(words), "{words:?} is not said");
    }
    Ok(())
}

async fn check(row: &Row, filled: &Filled, server: &mut Server) -> anyhow::Result<()> {
    let started = server.spawn_degraded().await;
    match row.outcome {
        Outcome::Refused(code) => {
            let error = started.expect_err("it should have refused to start").to_string();
            anyhow::ensure!(error.contains(&format!("exit status: {code})")), "{error}");
        }
        Outcome::NeverWrong => {
            if started.is_ok() {
                let (lost, _) = filled.verify_served(&server.client()).await?;
                println!("{}: {lost} objects are not served", row.fault);
            }
        }
        Outcome::ReadOnly => {
            started?;
            filled.verify(&server.client()).await?;
            let refused = put_new(&server.client()).await;
            anyhow::ensure!(refused.as_ref().is_err_and(|refused| refused.status() == Some(503)), "{refused:?}");
            server.kill().await;
            server.spawn_degraded().await?;
            filled.verify(&server.client()).await?;
        }
        Outcome::Served => {
            started?;
            filled.verify(&server.client()).await?;
            put_new(&server.client()).await.map_err(|refused| anyhow::anyhow!("writing: {refused:?}"))?;
            server.kill().await;
            server.spawn().await?;
            filled.verify(&server.client()).await?;
            verify_new(&server.client()).await?;
        }
    }
    Ok(())
}
