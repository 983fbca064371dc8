package main

// planeMakers are the data planes of this program, the preferred first.
var planeMakers = []planeMaker{}
