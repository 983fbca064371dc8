package memo_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead.dev/internal/memo"
)

// Orders name a customer and what is in the basket.
type order struct {
	customer string
	basket   []string
}

// Orders cost what their goods cost; customers owe the sum of their orders. A new price has the orders computed again
// that have this thing in their basket, and then the customers of the orders whose total is another.
func Example() {
	g := memo.New()

	// Inputs are set from outside.
	prices := memo.NewInput[string, int](g, "prices")
	orders := memo.NewInput[int, order](g, "orders")

	// A Sum gathers what many put under one key: for each customer, the totals of orders.
	debts := memo.NewSum[string, int, int](g, "debts")

	// A Table computes a value for a key. It reads through c, and thereby depends on what it read: on one order and
	// on some prices. It says what it reads and puts. Its driver is orders: there is a total for each order.
	totals := memo.For(memo.NewTable(g, "total", func(c *memo.Context, id int) (int, bool) {
		o, total := orders.Get(c, id), 0
		for _, thing := range o.basket {
			total += prices.Get(c, thing)
		}
		fmt.Printf("  order %d is computed\n", id)
		debts.Put(c, o.customer, id, total)
		return total, true
	}, memo.Reads(prices), memo.Puts(debts)), orders)

	// There is a bill for each customer who has orders. Watch has it say its changes.
	bills := memo.For(memo.NewTable(g, "bill", func(c *memo.Context, customer string) (string, bool) {
		fmt.Printf("  the bill of %s is computed\n", customer)
		parts := debts.Get(c, customer)
		var lines []string
		for _, id := range slices.Sorted(parts.Keys()) {
			total, _ := parts.Get(id)
			lines = append(lines, fmt.Sprintf("order %d: %d", id, total))
		}
		return strings.Join(lines, ", "), true
	}), debts).Watch()

	g.Seal()

	run := func(change string) {
		fmt.Println(change)
		g.Run()
		changes := bills.Changes()
		for _, customer := range slices.Sorted(maps.Keys(changes)) {
			fmt.Printf("  -> %s: %q\n", customer, changes[customer])
		}
	}

	prices.Set("tea", 3)
	prices.Set("cake", 5)
	orders.Set(1, order{"Ann", []string{"tea", "cake"}})
	run("Ann orders.")

	orders.Set(2, order{"Ben", []string{"tea"}})
	run("Ben orders; nobody else is looked at.")

	prices.Set("cake", 6)
	run("Cake is dearer; Ben has none.")

	orders.Set(1, order{"Ann", []string{"cake", "tea"}})
	run("Ann orders the same in another order: the total is equal, so it goes no further.")

	prices.Set("soup", 9)
	run("Soup is new, and nobody reads it.")

	orders.Delete(2)
	run("Ben's order goes, and so does the bill.")

	fmt.Println("Order 1 costs", totals.Get(g.Peek(), 1))

	// Output:
	// Ann orders.
	//   order 1 is computed
	//   the bill of Ann is computed
	//   -> Ann: "order 1: 8"
	// Ben orders; nobody else is looked at.
	//   order 2 is computed
	//   the bill of Ben is computed
	//   -> Ben: "order 2: 3"
	// Cake is dearer; Ben has none.
	//   order 1 is computed
	//   the bill of Ann is computed
	//   -> Ann: "order 1: 9"
	// Ann orders the same in another order: the total is equal, so it goes no further.
	//   order 1 is computed
	// Soup is new, and nobody reads it.
	// Ben's order goes, and so does the bill.
	//   -> Ben: ""
	// Order 1 costs 9
}
