//! Edits of a mounted `ConfigMap`, made as a kubelet makes them, and edits of plain directories.
//! Also data from the API server, and fixed values.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use testkit::config_map::replace;
use tokio::task::JoinSet;

use super::*;

/// A polling period that is longer than any test. With it, only file system events reveal an edit.
const NEVER: Duration = Duration::from_hours(1);
const TIMEOUT: Duration = Duration::from_secs(20);

struct RunningFollower {
    state: watch::Receiver<ConfigState>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

fn follow(source: ConfigSource) -> RunningFollower {
    let follower = source.open();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let state = follower.subscribe();
    tasks.spawn(follower.run(stop.clone()));
    RunningFollower { state, stop, tasks }
}

impl RunningFollower {
    /// Waits until the upstream of the state is `server`.
    async fn until_upstream(&mut self, server: &str) -> ConfigState {
        self.until(server, |state| upstream(state) == server).await
    }

    /// Waits until the state has an error.
    async fn until_refused(&mut self) -> ConfigState {
        self.until("an error", |state| state.error.is_some()).await
    }

    /// Waits until the state has no error.
    async fn until_mended(&mut self) -> ConfigState {
        self.until("no error", |state| state.error.is_none()).await
    }

    /// Waits until the state has the defaults.
    async fn until_default(&mut self) -> ConfigState {
        let is_default = |state: &ConfigState| *state.config == Config::default();
        self.until("the defaults", is_default).await
    }

    async fn until(&mut self, what: &str, good: impl FnMut(&ConfigState) -> bool) -> ConfigState {
        let mut state = self.state.clone();
        let Ok(seen) = tokio::time::timeout(TIMEOUT, state.wait_for(good)).await else {
            panic!("never saw {what}; the state is {:?}", self.state.borrow());
        };
        seen.unwrap().clone()
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

fn directory(path: &Path, period: Duration) -> ConfigSource {
    ConfigSource::Directory {
        path: path.to_owned(),
        period,
    }
}

fn upstream(state: &ConfigState) -> String {
    let servers = state.config.upstream_nameservers.iter();
    servers
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

fn replace_upstream(directory: &Path, server: &str) {
    let value = format!("[\"{server}\"]");
    replace(directory, &[("upstreamNameservers", &value)]).unwrap();
}

#[tokio::test]
async fn swapped_directory_is_followed() {
    let dir = TempDir::new().unwrap();
    replace_upstream(dir.path(), "192.0.2.1");
    let mut running = follow(directory(dir.path(), NEVER));
    assert_eq!(upstream(&running.state.borrow()), "192.0.2.1:53");
    assert_eq!(running.state.borrow().edits, 0);

    replace_upstream(dir.path(), "192.0.2.2");
    running.until_upstream("192.0.2.2:53").await;

    replace(dir.path(), &[("upstreamNameservers", "[")]).unwrap();
    let state = running.until_refused().await;
    assert_eq!(upstream(&state), "192.0.2.2:53");
    assert_eq!((state.edits, state.rejected), (1, 1));
    let error = state.error.unwrap();
    assert_eq!(error.key.as_deref(), Some("upstreamNameservers"));
    assert_eq!(error.value.as_deref(), Some("["));
    assert!(
        error.text.starts_with("unexpected end of JSON input"),
        "{}",
        error.text
    );

    let stub_domains = r#"{"acme.example": ["192.0.2.10"]}"#;
    replace(dir.path(), &[("stubDomains", stub_domains)]).unwrap();
    let state = running.until_mended().await;
    assert_eq!(state.config.stub_domains.len(), 1);
    assert_eq!(upstream(&state), "");
    assert_eq!((state.edits, state.rejected), (2, 1));
    running.end().await;
}

#[tokio::test]
async fn unknown_keys_are_in_state() {
    let dir = TempDir::new().unwrap();
    let files = [
        ("upstreamNameserver", r#"["192.0.2.1"]"#),
        ("stubDomains", "["),
    ];
    replace(dir.path(), &files).unwrap();
    let mut running = follow(directory(dir.path(), NEVER));
    let state = running.state.borrow().clone();
    let meant = state.unknown_keys[0].meant;
    assert_eq!(meant, Some(crate::ConfigKey::UpstreamNameservers));
    assert!(
        state.error.is_some() && state.is_default(),
        "the invalid value must be reported as well as the unknown key: {state:?}"
    );
    replace_upstream(dir.path(), "192.0.2.1");
    let state = running.until_mended().await;
    assert_eq!(state.unknown_keys, []);
    assert!(!state.is_default());
    running.end().await;
}

#[tokio::test]
async fn missing_directory_is_awaited() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("config");
    let mut running = follow(directory(&dir, NEVER));
    assert_eq!(*running.state.borrow().config, Config::default());
    for _ in 0..3 {
        replace(&dir, &[("federations", "a=b.example")]).unwrap();
        running
            .until("the values", |state| !state.config.federations.is_empty())
            .await;
        fs::remove_dir_all(&dir).unwrap();
        running.until_default().await;
    }
    assert!(running.state.borrow().error.is_none());
    running.end().await;
}

#[tokio::test]
async fn special_files_are_skipped() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join(".hidden"), [0xff]).unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/upstreamNameservers"), "[").unwrap();
    fs::create_dir(dir.path().join("stubDomains")).unwrap();
    symlink("/dev/zero", dir.path().join("federations")).unwrap();
    fs::write(dir.path().join("upstreamNameservers"), r#"["192.0.2.1"]"#).unwrap();
    let follower = directory(dir.path(), NEVER).open();
    let state = follower.subscribe().borrow().clone();
    assert_eq!(state.error, None);
    assert_eq!(upstream(&state), "192.0.2.1:53");
}

#[tokio::test]
async fn unreadable_directory_is_an_error() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, "a file").unwrap();
    let mut running = follow(directory(&path, Duration::from_millis(100)));
    let error = running.state.borrow().error.clone().unwrap();
    assert!(
        error.text.contains("config\" cannot be read"),
        "{}",
        error.text
    );
    assert_eq!(error.key, None);
    fs::remove_file(&path).unwrap();
    running.until_mended().await;
    // An error that several successive reads find is counted once.
    assert_eq!(running.state.borrow().rejected, 1);
    running.end().await;
}

#[tokio::test]
async fn edit_without_event_is_found_by_polling() {
    let dir = TempDir::new().unwrap();
    let real = dir.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::write(real.join("upstreamNameservers"), r#"["192.0.2.1"]"#).unwrap();
    let config = dir.path().join("config");
    fs::create_dir(&config).unwrap();
    // The target of the link is in another directory, so a change of the target causes no event in
    // the watched directory.
    symlink(
        real.join("upstreamNameservers"),
        config.join("upstreamNameservers"),
    )
    .unwrap();
    let mut running = follow(directory(&config, Duration::from_millis(100)));
    running.until_upstream("192.0.2.1:53").await;
    fs::write(real.join("upstreamNameservers"), r#"["192.0.2.2"]"#).unwrap();
    running.until_upstream("192.0.2.2:53").await;
    running.end().await;
}

#[tokio::test]
async fn last_of_many_edits_comes_into_force() {
    let dir = TempDir::new().unwrap();
    let mut running = follow(directory(dir.path(), NEVER));
    for last in 1..=200 {
        replace_upstream(dir.path(), &format!("192.0.2.{last}"));
    }
    running.until_upstream("192.0.2.200:53").await;
    assert_eq!(running.state.borrow().rejected, 0);
    running.end().await;
}

#[tokio::test]
async fn api_feed_is_followed() {
    let (feed, source) = ConfigSource::api();
    let mut running = follow(source);
    let set = |value: &str| {
        feed.set(RawData::from([(
            "upstreamNameservers".to_owned(),
            value.as_bytes().to_vec(),
        )]));
    };
    assert!(!running.state.borrow().has_data);
    feed.clear();
    running.until("known content", |state| state.has_data).await;
    set(r#"["192.0.2.1"]"#);
    running.until_upstream("192.0.2.1:53").await;
    set("[nonsense");
    let state = running.until_refused().await;
    assert_eq!(upstream(&state), "192.0.2.1:53");
    feed.clear();
    let state = running.until_default().await;
    assert_eq!(state.error, None);
    drop(feed);
    running.end().await;
}

#[tokio::test]
async fn fixed_values_stay() {
    let config = Config {
        upstream_nameservers: vec!["192.0.2.1".parse().unwrap()],
        ..Config::default()
    };
    let running = follow(ConfigSource::Fixed(Box::new(config.clone())));
    assert_eq!(*running.state.borrow().config, config);
    running.end().await;
}
