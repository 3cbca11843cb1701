/** The browser's own modal dialog: it keeps the focus inside, and Escape closes it. */

import { onMount } from "solid-js";

export function useDialog(close: () => void): (element: HTMLDialogElement) => void {
  return (element) => {
    onMount(() => element.showModal());
    element.addEventListener("cancel", (event) => {
      event.preventDefault();
      close();
    });
    element.addEventListener("click", (event) => {
      if (event.target === element) close();
    });
  };
}
