//! Which VPA controls a pod: an index of VPAs by what they select.
