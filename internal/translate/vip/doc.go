// Package vip gives the addresses of pools to those who want them.
package vip
