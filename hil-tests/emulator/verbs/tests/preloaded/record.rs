//! A test of the log as lines of JSON.

use crate::REQUEST_FAILED;
use crate::verbs::End;
use mlx5_testing::preload::{Side::Inside, prepared};

const LOG_JSON: &str = "MLX5_UVERBS_LOG_JSON";

/// The syndrome of a key or an address that the responder refuses.
const REMOTE_ACCESS: u8 = 0x13;

#[test]
fn requests_and_completions_are_lines_of_json() {
    let prepare = |command: &mut std::process::Command, directory: &std::path::Path| {
        command.env(LOG_JSON, directory.join("log.jsonl"));
    };
    let Inside = prepared(prepare) else { return };
    let file = std::env::var_os(LOG_JSON).unwrap();
    std::fs::write(&file, "what was there before\n").unwrap();
    let mut end = End::loopback();
    end.write_and_succeed(24, end.data.0 + 1024, end.key);
    // The log line is written after the completion entry, under the device's lock. This call waits for
    // the lock, so afterwards the line is in the log.
    end.context.pd();
    let log = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let [before, request, completion] = lines[..] else { panic!("{log}") };
    assert_eq!(before, "what was there before");
    let process = format!("\"process\":{},", std::process::id());
    let of = format!("\"queue_pair\":{},\"direction\":\"out\"", end.qpn);
    for (line, kind, words) in [
        (request, "request", "RDMA_WRITE: 24 bytes in 1 data segment"),
        (completion, "completion", "counter 0, RDMA_WRITE"),
    ] {
        let kind = format!("\"kind\":\"{kind}\"");
        assert!(line.starts_with("{\"time\":") && line.ends_with("\"}"), "{line}");
        for part in [&process, &of, &kind, words] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

/// Both logs tell why a request has failed.
#[test]
fn causes_of_failures_are_in_both_logs() {
    let prepare = |command: &mut std::process::Command, directory: &std::path::Path| {
        command.env(LOG_JSON, directory.join("log.jsonl")).env("MLX5_UVERBS_LOG", "1");
        let said = directory.join("said");
        command.env("SAID", &said).stderr(std::fs::File::create(said).unwrap());
    };
    let Inside = prepared(prepare) else { return };
    let mut end = End::loopback();
    end.write(24, end.data.0, 0xabcd_ef00);
    assert_eq!(end.poll(), (REQUEST_FAILED, REMOTE_ACCESS));
    // Both logs are written under the device's lock. This call waits for the lock, so afterwards both
    // logs are complete.
    end.context.pd();
    let cause = "no mkey has the index of key 0xabcdef00";
    for (variable, told) in [(LOG_JSON, format!("\"cause\":\"{cause}")), ("SAID", format!(": {cause}"))] {
        let text = std::fs::read_to_string(std::env::var_os(variable).unwrap()).unwrap();
        let failures = text.lines().filter(|line| line.contains("remote access error"));
        assert_eq!(failures.filter(|line| line.contains(&told)).count(), 1, "{variable}: {text}");
    }
}
