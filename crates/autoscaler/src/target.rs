//! What the targetRef of a VPA selects, and which controller a pod belongs to.
