//! Validation of probes, lifecycle hooks and stop signals.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, PodSpec, Probe, SleepAction,
    TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_validation::field::{FieldError, Path};

use super::ports;
use plumb_apiserver::validation::format;
use plumb_apiserver::validation::{Errors, add_invalid, validate_nonnegative_field};

/// Validates the lifecycle hooks and the probes of a container.
pub(super) fn validate_lifecycle_and_probes(
    spec: &PodSpec,
    container: &Container,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(lifecycle) = &container.lifecycle {
        let path = path.child("lifecycle");
        for (field, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
            if let Some(hook) = hook {
                validate_handler(
                    Handler::from(hook),
                    spec.termination_grace_period_seconds,
                    &path.child(field),
                    errors,
                );
            }
        }
        if let Some(signal) = lifecycle.stop_signal.as_deref() {
            validate_stop_signal(spec, signal, &path.child("stopSignal"), errors);
        }
    }
    for (field, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        let Some(probe) = probe else { continue };
        let path = path.child(field);
        validate_probe(probe, &path, errors);
        if field == "readinessProbe" {
            if let Some(seconds) = probe.termination_grace_period_seconds {
                let rule = "must not be set for readinessProbes";
                errors.push(FieldError::invalid(path.child("terminationGracePeriodSeconds"), seconds, rule));
            }
        } else if let Some(threshold) = probe.success_threshold.filter(|threshold| *threshold != 1) {
            errors.push(FieldError::invalid(path.child("successThreshold"), threshold, "must be 1"));
        }
    }
}

fn validate_probe(probe: &Probe, path: &Path<'_>, errors: &mut Errors) {
    validate_handler(Handler::from(probe), None, path, errors);
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        validate_nonnegative_field(i64::from(value.unwrap_or(0)), &path.child(field), errors);
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        let path = path.child("terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(path, seconds, "must be greater than 0"));
    }
}

/// The handlers of a probe or hook, of which exactly one is set.
#[derive(Default)]
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http: Option<&'a HTTPGetAction>,
    tcp: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> From<&'a Probe> for Handler<'a> {
    fn from(probe: &'a Probe) -> Self {
        Self {
            exec: probe.exec.as_ref(),
            http: probe.http_get.as_ref(),
            tcp: probe.tcp_socket.as_ref(),
            grpc: probe.grpc.as_ref(),
            sleep: None,
        }
    }
}

impl<'a> From<&'a LifecycleHandler> for Handler<'a> {
    fn from(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http: hook.http_get.as_ref(),
            tcp: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }
}

fn validate_handler(handler: Handler<'_>, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let given = [
        ("exec", handler.exec.is_some()),
        ("httpGet", handler.http.is_some()),
        ("tcpSocket", handler.tcp.is_some()),
        ("grpc", handler.grpc.is_some()),
        ("sleep", handler.sleep.is_some()),
    ];
    let mut given = given.into_iter().filter_map(|(field, is_set)| is_set.then_some(field));
    let Some(first) = given.next() else {
        errors.push(FieldError::required(path, "must specify a handler type"));
        return;
    };
    let own = path.child(first);
    if let Some(exec) = handler.exec.filter(|_| first == "exec")
        && exec.command.as_ref().is_none_or(Vec::is_empty)
    {
        errors.push(FieldError::required(own.child("command"), ""));
    }
    if let Some(http) = handler.http.filter(|_| first == "httpGet") {
        validate_http_get_action(http, &own, errors);
    }
    if let Some(tcp) = handler.tcp.filter(|_| first == "tcpSocket") {
        ports::validate_port_number_or_name(&tcp.port, &own.child("port"), errors);
    }
    if let Some(grpc) = handler.grpc.filter(|_| first == "grpc") {
        ports::validate_port_number_or_name(&IntOrString::Int(grpc.port), &own.child("port"), errors);
    }
    if let (Some(sleep), Some(grace)) = (handler.sleep.filter(|_| first == "sleep"), grace)
        && !(0..=grace).contains(&sleep.seconds)
    {
        let rule = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.push(FieldError::invalid(own, sleep.seconds, rule));
    }
    for field in given {
        errors.push(FieldError::forbidden(path.child(field), "may not specify more than 1 handler type"));
    }
}

fn validate_http_get_action(http: &HTTPGetAction, path: &Path<'_>, errors: &mut Errors) {
    if http.path.as_deref().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(path.child("path"), ""));
    }
    ports::validate_port_number_or_name(&http.port, &path.child("port"), errors);
    let scheme = http.scheme.as_deref().unwrap_or_default();
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.push(FieldError::not_supported(path.child("scheme"), scheme, &["HTTP", "HTTPS"]));
    }
    for header in http.http_headers.iter().flatten() {
        add_invalid(errors, &path.child("httpHeaders"), &header.name, format::http_header_name(&header.name));
    }
}

/// Validates a stop signal, which requires `spec.os.name`: the supported signals depend on it.
fn validate_stop_signal(spec: &PodSpec, signal: &str, path: &Path<'_>, errors: &mut Errors) {
    match spec.os.as_ref().map(|os| os.name.as_str()) {
        None => {
            let rule = "may not be set for containers with empty `spec.os.name`";
            errors.push(FieldError::forbidden(path, rule));
        }
        Some("windows") if !["SIGKILL", "SIGTERM"].contains(&signal) => {
            errors.push(FieldError::not_supported(path, signal, &["SIGKILL", "SIGTERM"]));
        }
        Some("linux") if !linux_signals().iter().any(|known| known == signal) => {
            let known = linux_signals();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            errors.push(FieldError::not_supported(path, signal, &known));
        }
        Some(_) => {}
    }
}

/// The signals of Linux in alphabetical order, with the real-time signals.
fn linux_signals() -> Vec<String> {
    let named = [
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL",
        "PIPE", "POLL", "PROF", "PWR", "QUIT", "RTMAX", "RTMIN", "SEGV", "STKFLT", "STOP", "SYS", "TERM",
        "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
    ];
    let mut signals: Vec<String> = named.iter().map(|name| format!("SIG{name}")).collect();
    signals.extend((1..=14).map(|n| format!("SIGRTMAX-{n}")));
    signals.extend((1..=15).map(|n| format!("SIGRTMIN+{n}")));
    signals.sort_unstable();
    signals
}
