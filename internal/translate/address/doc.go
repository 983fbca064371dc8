// Package address has ranges of IP addresses, and the prefixes and ranges that resources write.
package address
