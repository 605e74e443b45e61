//! Summaries for TensorBoard's plugin HParams: a table of runs with their options and metrics.
//!
//! ```text
//! Value              1 tag: string, 9 metadata: { 1 plugin_data: { 1 plugin_name: "hparams", 2 content: HParamsPluginData } }
//! HParamsPluginData  3 session_start_info: SessionStartInfo | 4 session_end_info: SessionEndInfo
//! SessionStartInfo   1 hparams: map<string, google.protobuf.Value>, 5 start_time_secs: double
//! SessionEndInfo     1 status: enum, SUCCESS = 1, 2 end_time_secs: double
//! google.protobuf.Value  2 number_value: double | 3 string_value: string | 4 bool_value: bool
//! ```
//!
//! Source: tensorboard/plugins/hparams, plugin_data.proto. The plugin takes metrics from the scalars of the run.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::events::Message;

const START_TAG: &str = "_hparams_/session_start_info";
const END_TAG: &str = "_hparams_/session_end_info";
const SUCCESS: u64 = 1;

/// Adds the options of a run to a summary. Options that are `auto` have their value in `chosen`, if it is there.
pub(super) fn start(summary: &mut Message, options: Table, chosen: &BTreeMap<&'static str, String>, seconds: f64) {
    let options = options.into_iter().filter(|(option, _)| option != "out" && option != "class-names");
    summary.message(1, |value| {
        content(value, START_TAG, |data| {
            data.message(3, |start| {
                for (option, set) in options {
                    start.message(1, |entry| {
                        entry.bytes(1, option.as_bytes());
                        entry.message(2, |value| match (chosen.get(option.as_str()), &set) {
                            (Some(chosen), _) => value.bytes(3, chosen.as_bytes()),
                            (None, Value::Integer(number)) => value.double(2, *number as f64),
                            (None, Value::Float(number)) => value.double(2, *number),
                            (None, Value::Boolean(is_set)) => value.varint(4, u64::from(*is_set)),
                            (None, Value::String(text)) => value.bytes(3, text.as_bytes()),
                            (None, other) => value.bytes(3, other.to_string().as_bytes()),
                        });
                    });
                }
                start.double(5, seconds);
            });
        });
    });
}

/// Adds that a run is finished to a summary.
pub(super) fn end(summary: &mut Message, seconds: f64) {
    summary.message(1, |value| {
        content(value, END_TAG, |data| {
            data.message(4, |end| {
                end.varint(1, SUCCESS);
                end.double(2, seconds);
            });
        });
    });
}

fn content(value: &mut Message, tag: &str, fill: impl FnOnce(&mut Message)) {
    value.bytes(1, tag.as_bytes());
    value.message(9, |metadata| {
        metadata.message(1, |plugin| {
            plugin.bytes(1, b"hparams");
            plugin.message(2, fill);
        });
    });
}
