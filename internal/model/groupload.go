package model

// FirstByteMetric is the load metric in which a proxy adds up the time until the first byte of a backend's answers, in microseconds.
const FirstByteMetric = "fairlead_first_byte"
