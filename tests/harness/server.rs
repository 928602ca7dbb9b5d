//! A server process of a test: its targets, its ports, its log, its death.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{client, http, metrics::Metrics};

const ACCESS_KEY: &str = "GABIONTESTACCESSKEY0";
const SECRET_KEY: &str = "gabion-test-secret-key-of-forty-bytes-00";

/// How long a server may take to be ready: start is replay of the log's tail, or a rebuild of a small index.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// How often readiness is asked for.
const READY_POLL: Duration = Duration::from_millis(20);
/// Another program may take a free port between its choice and its use.
const PORT_ATTEMPTS: usize = 5;

/// What kind of server a test wants.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of targets.
    pub targets: usize,
    /// `k+m`.
    pub geometry: &'static str,
    /// More flags of `gabion server`.
    pub flags: Vec<String>,
    /// Where the targets lie instead of a temporary directory, e.g. on a small file system.
    pub place: Option<PathBuf>,
    /// The state directory, unless it lies in the temporary directory.
    pub state: Option<PathBuf>,
}

impl Setup {
    /// One target without redundancy.
    #[must_use]
    pub fn single() -> Self {
        Self { targets: 1, geometry: "1+0", flags: Vec::new(), place: None, state: None }
    }

    /// Six targets, of which two may be lost.
    #[must_use]
    pub fn six() -> Self {
        Self { targets: 6, geometry: "4+2", flags: Vec::new(), place: None, state: None }
    }

    /// With one more flag and its value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// With targets below this directory.
    #[must_use]
    pub fn below(mut self, place: &Path) -> Self {
        self.place = Some(place.to_owned());
        self
    }

    /// With this state directory.
    #[must_use]
    pub fn state(mut self, state: &Path) -> Self {
        self.state = Some(state.to_owned());
        self
    }
}

/// A server. It is killed when this value is dropped; its directories stay when the test fails.
#[derive(Debug)]
pub struct Server {
    setup: Setup,
    directory: Option<TempDir>,
    targets: Vec<PathBuf>,
    state: PathBuf,
    log: PathBuf,
    child: Option<Child>,
    listen: String,
    admin: String,
}

impl Server {
    /// Starts a server on new, empty targets and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time; the error holds its log.
    pub async fn start(setup: Setup) -> anyhow::Result<Self> {
        let mut server = Self::new(setup)?;
        server.spawn().await?;
        Ok(server)
    }

    /// Prepares the directories of a server, and starts nothing.
    ///
    /// # Errors
    /// When they can not be created.
    pub fn new(setup: Setup) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("gabion-test-").tempdir()?;
        let place = setup.place.clone().unwrap_or_else(|| directory.path().to_owned());
        let targets: Vec<PathBuf> = (0..setup.targets).map(|index| place.join(format!("target{index}"))).collect();
        for target in &targets {
            fs::create_dir_all(target)?;
        }
        let state = setup.state.clone().unwrap_or_else(|| directory.path().join("state"));
        let log = directory.path().join("server.log");
        let (listen, admin) = (String::new(), String::new());
        Ok(Self { setup, directory: Some(directory), targets, state, log, child: None, listen, admin })
    }

    /// The program under test.
    ///
    /// # Panics
    /// When `GABION_TEST_BIN` is not set.
    #[must_use]
    pub fn program() -> PathBuf {
        std::env::var_os("GABION_TEST_BIN")
            .expect("GABION_TEST_BIN must name the built server: use `cargo xtask integration`")
            .into()
    }

    /// Starts the server on its targets and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time; the error holds its log.
    pub async fn spawn(&mut self) -> anyhow::Result<()> {
        self.spawn_until(|answer| answer.status == 200).await
    }

    /// Like [`Server::spawn`], but content with a server that has too few targets to take writes, and reads all the same.
    ///
    /// # Errors
    /// As [`Server::spawn`].
    pub async fn spawn_degraded(&mut self) -> anyhow::Result<()> {
        self.spawn_until(|answer| answer.status == 200 || answer.body.contains("targets are up")).await
    }

    async fn spawn_until(&mut self, good: fn(&http::Answer) -> bool) -> anyhow::Result<()> {
        for _ in 0..PORT_ATTEMPTS {
            self.launch()?;
            if self.wait_until(good).await? {
                return Ok(());
            }
        }
        bail!("no free port was found; the server's log:\n{}", self.log_tail())
    }

    /// Starts the process and does not wait for anything.
    ///
    /// # Errors
    /// When the program can not be started.
    pub fn launch(&mut self) -> anyhow::Result<()> {
        (self.listen, self.admin) = (free_address()?, free_address()?);
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = clean_command()
            .arg("server")
            .args(&self.targets)
            .args(["--geometry", self.setup.geometry, "--listen", &self.listen, "--admin-listen", &self.admin])
            .arg("--state")
            .arg(&self.state)
            .args(&self.setup.flags)
            .env("GABION_ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("GABION_ROOT_SECRET_KEY", SECRET_KEY)
            // Six open segments are preallocated: of the default size they would take 9 GiB of the tester's disk.
            .env("GABION_SEGMENT_PAYLOAD_BYTES", "64MiB")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", Self::program().display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits for a good answer to `/health/ready`. `false`: the port was taken meanwhile.
    async fn wait_until(&mut self, good: fn(&http::Answer) -> bool) -> anyhow::Result<bool> {
        let admin = self.admin.clone();
        let child = self.child.as_mut().context("the server was started")?;
        let ready = async {
            loop {
                if http::get(&admin, "/health/ready").await.is_ok_and(|answer| good(&answer)) {
                    return;
                }
                tokio::time::sleep(READY_POLL).await;
            }
        };
        let ended = tokio::select! {
            () = ready => return Ok(true),
            status = child.wait() => Some(status?),
            () = tokio::time::sleep(READY_LIMIT) => None,
        };
        let log = self.log_tail();
        match ended {
            Some(_) if log.contains("in use") && log.contains("ddress") => Ok(false),
            Some(status) => bail!("the server ended ({status}); its log:\n{log}"),
            None => bail!("the server was not ready within {READY_LIMIT:?}; its log:\n{log}"),
        }
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Panics
    /// When it was not running.
    pub async fn kill(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        child.kill().await.expect("a child can be killed");
    }

    /// SIGTERM: the graceful end. Returns whether the exit status was success.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn stop(&mut self) -> anyhow::Result<bool> {
        let mut child = self.child.take().context("the server runs")?;
        let pid = child.id().context("the server has not ended by itself")?;
        let sent = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        anyhow::ensure!(sent.success(), "kill -TERM failed");
        let status = tokio::time::timeout(READY_LIMIT, child.wait())
            .await
            .with_context(|| format!("the server did not end; its log:\n{}", self.log_tail()))??;
        Ok(status.success())
    }

    /// Kills the server and starts it again on the same targets.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        self.kill().await;
        self.spawn().await
    }

    /// A client of this server, with the SDK's default checksums.
    #[must_use]
    pub fn client(&self) -> aws_sdk_s3::Client {
        client::client_for(&self.endpoint(), ACCESS_KEY, SECRET_KEY)
    }

    /// A client that sends and checks checksums only where a test asks for them.
    #[must_use]
    pub fn small_client(&self) -> aws_sdk_s3::Client {
        client::small_client(&self.endpoint(), ACCESS_KEY, SECRET_KEY)
    }

    /// `http://host:port` of the S3 port.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// `host:port` of the S3 port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.listen
    }

    /// `host:port` of the admin port.
    #[must_use]
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// The directories of the targets.
    #[must_use]
    pub fn targets(&self) -> &[PathBuf] {
        &self.targets
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The metrics page.
    ///
    /// # Errors
    /// When it can not be had.
    pub async fn metrics(&self) -> anyhow::Result<Metrics> {
        let answer = http::get(&self.admin, "/metrics").await?;
        anyhow::ensure!(answer.status == 200, "/metrics: {answer:?}");
        Ok(Metrics::new(answer.body))
    }

    /// Most memory that the process ever had resident, in bytes (`VmHWM`).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn peak_memory_bytes(&self) -> anyhow::Result<u64> {
        let pid = self.child.as_ref().and_then(Child::id).context("the server runs")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("the kernel reports VmHWM")?;
        let kib: u64 = line.split_whitespace().nth(1).context("a number of KiB")?.parse()?;
        Ok(kib * 1024)
    }

    /// Runs `gabion bench OPERATION …` against this server and returns its report.
    ///
    /// # Errors
    /// When it fails; the error holds what it said.
    pub async fn bench(&self, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
        let mut command = client_command(&[&["bench"], arguments].concat());
        let output = command.args(["--endpoint", &self.endpoint(), "--json", "-"]).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "gabion bench {arguments:?}: {said}\n{}", self.log_tail());
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Runs `gabion ARGUMENTS…` with this server's credentials and returns what it printed.
    ///
    /// # Errors
    /// When it fails; the error holds its exit status and what it said.
    pub async fn gabion(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = client_command(arguments).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "gabion {arguments:?}: {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Does something while no thread of the process runs.
    ///
    /// # Errors
    /// When it does not run, or can not be stopped.
    pub async fn paused(&self, act: impl FnOnce()) -> anyhow::Result<()> {
        let pid = self.pid().context("the server does not run")?;
        let signal = async |name: &str| {
            let status = Command::new("kill").args([name, &pid.to_string()]).status().await?;
            anyhow::ensure!(status.success(), "kill {name}: {status}");
            Ok(())
        };
        // A thread that is in the kernel stops when it leaves it; one that has ended has no state.
        let is_stopped = |thread: &Path| {
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|state| state.is_empty() || state.starts_with('T'))
        };
        signal("-STOP").await?;
        loop {
            let threads = fs::read_dir(format!("/proc/{pid}/task"))?.collect::<Result<Vec<_>, _>>()?;
            if threads.iter().all(|thread| is_stopped(&thread.path())) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        act();
        signal("-CONT").await
    }

    /// The arguments that name this server's storage to another subcommand: targets and state.
    #[must_use]
    pub fn storage_arguments(&self) -> Vec<String> {
        let targets = self.targets.iter().map(|target| target.display().to_string());
        targets.chain(["--state".to_owned(), self.state.display().to_string()]).collect()
    }

    /// The last part of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(8 * 1024)..]).into_owned()
    }

    /// The whole log.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Files and directories on all targets.
    ///
    /// # Errors
    /// When one can not be read.
    pub fn inodes(&self) -> anyhow::Result<usize> {
        self.targets.iter().map(|target| count_entries(target)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let (true, Some(directory)) = (std::thread::panicking(), self.directory.take()) {
            let kept = directory.keep();
            let tail = self.log_tail();
            // The test harness captures and shows what a failed test prints.
            #[expect(clippy::print_stderr, reason = "says where the remains of a failed test are")]
            {
                eprintln!("the server's files are kept in {}; its log ends with:\n{tail}", kept.display());
            }
        }
    }
}

/// The program, without settings of whoever runs the tests.
/// `gabion ARGUMENTS…` with the credentials that every server here takes, to be started by who wants more than what it printed.
#[must_use]
pub fn client_command(arguments: &[&str]) -> Command {
    let mut command = clean_command();
    command.args(arguments).env("GABION_ACCESS_KEY", ACCESS_KEY).env("GABION_SECRET_KEY", SECRET_KEY);
    command
}

fn clean_command() -> Command {
    let mut command = Command::new(Server::program());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABION_")) {
        command.env_remove(name);
    }
    command
}

fn count_entries(directory: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += 1;
        if entry.file_type()?.is_dir() {
            count += count_entries(&entry.path())?;
        }
    }
    Ok(count)
}

/// A loopback address that nobody listens on now.
fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
