package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/export/clickhouse"
)

func newConfigClickHouseCommand() *cobra.Command {
	schema := clickhouse.DefaultSchema()
	partition, upgrade := "day", false
	cmd := &cobra.Command{
		Use:   "clickhouse",
		Short: "Print the schema of the tables that the clickhouse exporter needs",
		Long: `Clickhouse prints the statements that create the database, the table of records, the
table of intervals, and sums by minute and hour. They change nothing that is there.
With --upgrade it prints statements that add the columns of this version to tables that
an earlier one created.`,
		Example: `  waymark config clickhouse | clickhouse-client --multiquery
  waymark config clickhouse --keep 720h --partition month --database waymark
  waymark config clickhouse --upgrade | clickhouse-client --multiquery`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch partition {
			case "day", "month":
				schema.Monthly = partition == "month"
			default:
				return command.UsageErrorf("--partition %q: write day or month", partition)
			}
			if schema.Keep < 0 || schema.Window < 0 {
				return command.UsageErrorf("--keep and --window: write 0 or more")
			}
			if err := schema.Check(); err != nil {
				return command.UsageError{Err: err}
			}
			statements := schema.Statements()
			if upgrade {
				statements = schema.Additions()
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), clickhouse.Text(statements))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&schema.Database, "database", schema.Database, "name of the database")
	f.StringVar(&schema.Flows, "table", schema.Flows, "name of the table of records; those of others begin so")
	f.StringVar(&partition, "partition", partition, "time of a partition: day or month")
	command.DurationVar(f, &schema.Keep, "keep", schema.Keep, "age at which records leave; sums stay ten times as long; 0: never")
	f.IntVar(&schema.Window, "window", schema.Window, "inserts that a table remembers, so that one that is sent twice is stored once: more than all agents send within some minutes")
	f.BoolVar(&upgrade, "upgrade", false, "print statements that add columns to tables of an earlier version")
	return cmd
}
