//! Rules of the schema that no attribute can say.

use serde_json::json;

/// Rules on each entry of `spec.tuning.sysctls`: what is harmful everywhere is refused by the API
/// server, with the value in the message. Rules on an entry, since a message that searches the list
/// for it is beyond the server's cost budget (measured on 1.34).
pub(super) fn refuse_harmful_values(schema: &mut schemars::Schema) {
    let rules = json!([
        {
            "rule": "self.name != 'net.ipv4.tcp_tw_recycle'",
            "message": "net.ipv4.tcp_tw_recycle: removed from Linux in 4.12; it broke clients behind NAT. \
                        TIME_WAIT on a server is no problem to solve: leave it out"
        },
        {
            "rule": "self.name != 'net.ipv4.tcp_syncookies' || self.value in ['1', '2']",
            "messageExpression": "'net.ipv4.tcp_syncookies: \"' + self.value + '\" is not permitted, 1 or 2 \
                                  are: without cookies each SYN flood is an outage. Raise \
                                  net.core.somaxconn and the backlog of the listener instead'"
        },
        {
            "rule": "!(self.name in ['net.core.somaxconn', 'net.ipv4.tcp_max_syn_backlog']) || \
                     (self.value.matches('^[1-9][0-9]{2,4}$') && int(self.value) >= 128 && \
                     int(self.value) <= 65535)",
            "messageExpression": "self.name + ': \"' + self.value + '\" is not permitted, 128 to 65535 are: \
                                  each waiting connection costs kernel memory, and a longer queue only \
                                  turns overload into waiting time'"
        }
    ]);
    if let Some(items) = schema
        .get_mut("items")
        .and_then(serde_json::Value::as_object_mut)
    {
        items.insert("x-kubernetes-validations".to_owned(), rules);
    }
}
