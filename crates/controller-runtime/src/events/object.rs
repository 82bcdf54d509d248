//! The objects of events.

use k8s_openapi::api::core::v1::{Event, EventSeries, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use serde_json::{Value, json};

use super::correlate::Observed;
use super::{Emitted, EventStyle, NewEvent, RecorderConfig};

/// How long the message of an event may be that has an event time.
const LONGEST_MESSAGE: usize = 1024;

/// The whole object.
pub(super) fn object(config: &RecorderConfig, emitted: Emitted, observed: Observed) -> Event {
    let Emitted { regarding, event, at } = emitted;
    let NewEvent { type_, reason, action, related, message: _ } = event;
    let Observed { name, count, first, message } = observed;
    // An event about an object without a namespace is in this one.
    let namespace = regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    let event = Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: regarding,
        related,
        type_: Some(type_.name().to_owned()),
        reason: Some(reason.into_owned()),
        action: action.map(std::borrow::Cow::into_owned),
        reporting_component: Some(config.component.clone()),
        reporting_instance: config.instance.clone(),
        ..Event::default()
    };
    match config.style {
        EventStyle::Counted => Event {
            message: Some(message),
            source: Some(EventSource {
                component: Some(config.component.clone()),
                host: config.instance.clone(),
            }),
            first_timestamp: Some(Time(first)),
            last_timestamp: Some(Time(at)),
            count: Some(count),
            ..event
        },
        EventStyle::Series => Event {
            message: Some(shortened(message)),
            event_time: Some(MicroTime(first)),
            series: (count > 1)
                .then_some(EventSeries { count: Some(count), last_observed_time: Some(MicroTime(at)) }),
            ..event
        },
    }
}

/// The fields that change when an event is repeated.
pub(super) fn patch(event: &Event) -> Value {
    let Event { message, count, last_timestamp, series, .. } = event;
    match series {
        Some(series) => json!({ "message": message, "series": series }),
        None => json!({ "message": message, "count": count, "lastTimestamp": last_timestamp }),
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE - 4));
        message.push_str(" ...");
    }
    message
}
