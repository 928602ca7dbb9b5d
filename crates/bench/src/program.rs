//! This program, to be started once more.

use std::{os::unix::process::CommandExt, process::Command};

/// Starts the very file that runs, with the arguments that it was started with, also if another stands in its place by now, or none: where it was is where a new version is put.
pub(crate) fn own_program() -> Command {
    // The kernel resolves it in the child, before that becomes another program.
    let mut program = Command::new("/proc/self/exe");
    let mut words = std::env::args_os();
    if let Some(name) = words.next() {
        program.arg0(name);
    }
    program.args(words);
    program
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const VARIABLE: &str = "GABION_BENCH_TEST_REPLACED";

    #[test]
    fn a_program_that_was_replaced_starts_itself() {
        match std::env::var(VARIABLE).as_deref() {
            // This test under a name that another program takes.
            Ok("copy") => {
                let place = std::env::current_exe().unwrap();
                fs::remove_file(&place).unwrap();
                fs::write(&place, "#!/bin/sh\nexit 7\n").unwrap();
                fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
                let ended = own_program().env(VARIABLE, "copy of a copy").status().unwrap();
                assert!(ended.success(), "{ended}");
            }
            Ok(_) => {}
            Err(_) => {
                let program = std::env::current_exe().unwrap();
                let place = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
                let copy = place.path().join("program");
                fs::hard_link(&program, &copy).unwrap();
                let name = "program::tests::a_program_that_was_replaced_starts_itself";
                let ended = Command::new(&copy).args(["--exact", name]).env(VARIABLE, "copy").output().unwrap();
                assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            }
        }
    }
}
