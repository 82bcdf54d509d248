//! Deployments, StatefulSets and DaemonSets: how their native controllers are held while pods are resized.
